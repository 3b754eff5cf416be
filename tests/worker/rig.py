"""Workers for tests: an agent within this process, or a worker process of its own, whose runs are scripted."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Attempt, DeviceLease, Job
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.agent import Agent, Pace
from flash_grpo_studio.worker.devices import Device, cpu_slots
from flash_grpo_studio.worker.escalate import Patience
from flash_grpo_studio.worker.launch import Commands, Ground
from flash_grpo_studio.worker.processes import tagged
from flash_grpo_studio.worker.supervise import Setting
from tests.studio import Parts

QUICK = Pace(poll=0.1, watch=1.0, reconcile=0.3, beat=0.2, facts=5.0)
SHORT = Patience(look=0.05, pause=2.0, cancel=0.6, end=0.6, shutdown_ask=0.8, shutdown_end=0.6, hang=60.0, store=1.0)
ROOT = Path(__file__).parents[2]
# Small enough to be over seconds after torch was imported.
TINY: dict[str, Any] = {
    "updates": 6,
    "evaluate_every": 3,
    "checkpoint_every": 1,
    "validation_limit": 2,
    "heldout_limit": 2,
    "videos_saved": 2,
    "prompts_per_update": 2,
    "group_size": 3,
    "evaluation_steps": 2,
}


def scripted(**script: Any) -> Commands:
    """Commands that start a scripted run for every claim; a job named in `script` by its id has its own script."""

    def command(ground: Ground, claim: Claim) -> list[str]:
        own = {"folder": "run" if claim.kind == "alignment" else "report", **script}
        # -c instead of -m: the runs' environment keeps the working folder off the path, as it should.
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['scripted', {json.dumps(json.dumps(own))}]; "
        )
        return [
            sys.executable,
            "-c",
            code + "import runpy; runpy.run_module('tests.worker.scripted', run_name='__main__')",
        ]

    return command


def setting(parts: Parts, commands: Commands, patience: Patience = SHORT, slots: int = 1, host: str = "") -> Setting:
    """What a worker of this machine, or of one called `host`, knows."""
    token = parts.workspace.prepare()
    ground = Ground(parts.workspace, token, host or socket.gethostname(), slots)
    return Setting(parts.store, ground, patience, commands)


@dataclass
class Running:
    """An agent at work in a thread of this process."""

    agent: Agent
    thread: threading.Thread
    errors: list[BaseException] = field(default_factory=list)

    def stop(self) -> None:
        """Stop it as a signal would."""
        self.agent.stop()
        self.thread.join(30)
        assert not self.thread.is_alive(), "the agent does not stop"
        if self.errors:
            raise self.errors[0]


@contextmanager
def working(
    parts: Parts,
    commands: Commands,
    patience: Patience = SHORT,
    slots: int = 1,
    pace: Pace = QUICK,
    version: str = "test",
    devices: Sequence[Device] | None = None,
) -> Iterator[Running]:
    """An agent at work; on the way out it is stopped as by a signal."""
    offered = cpu_slots(slots) if devices is None else devices
    agent = Agent(setting(parts, commands, patience, slots), offered, version, pace)
    running = Running(agent, threading.Thread(target=lambda: None))

    def work() -> None:
        try:
            agent.run()
        except BaseException as error:
            running.errors.append(error)

    running.thread = threading.Thread(target=work, daemon=True)
    running.thread.start()
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def worker_process(
    parts: Parts, log: Path, script: dict[str, Any] | None = None, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process: the real one, or with a script one whose runs are scripted. Killed on the way out."""
    where = ["--workspace", str(parts.workspace.folder), "--database-url", parts.store.url]
    module = ["flash_grpo.cli", "worker"] if script is None else ["tests.worker.rig", "--script", json.dumps(script)]
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *module, *where, *options],
            stdout=file,
            stderr=file,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(until: Callable[[], Any], seconds: float = 20.0, what: str = "") -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < deadline, what or "it did not come in time"
        time.sleep(0.02)
    return found


def wait_for(parts: Parts, job_id: str, *states: str, seconds: float = 20.0) -> Job:
    """Wait until a job is in one of these states; any other end fails at once."""

    def there() -> Job | None:
        job = parts.job(job_id)
        return job if job.state in states else None

    try:
        found: Job = wait(there, seconds)
    except AssertionError:
        job = parts.job(job_id)
        raise AssertionError(f"the job is {job.state} ({job.message}), not {' or '.join(states)}") from None
    return found


def attempts_of(parts: Parts, job_id: str) -> list[Attempt]:
    """All attempts, in order."""
    with parts.store.reading() as session:
        return session.query(Attempt).filter(Attempt.job_id == job_id).order_by(Attempt.number).all()


def leases(parts: Parts) -> list[DeviceLease]:
    """Devices in use."""
    with parts.store.reading() as session:
        return session.query(DeviceLease).all()


def processes(parts: Parts, job_id: str | None = None) -> list[int]:
    """Living processes of this studio's runs."""
    return [one.pid for one in tagged(parts.workspace.prepare(), job_id)]


def assert_nothing_left(parts: Parts) -> None:
    """Neither a process nor a lease."""
    wait(lambda: not processes(parts), 5.0, f"processes are left: {processes(parts)}")
    assert leases(parts) == []


def _main() -> None:
    """A worker process whose runs are scripted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=json.loads)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--database-url")
    given = parser.parse_args()
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    workspace = Workspace(given.workspace)
    ground = Ground(workspace, workspace.prepare(), socket.gethostname())
    found = Setting(Store(given.database_url), ground, SHORT, scripted(**given.script))
    agent = Agent(found, cpu_slots(1), "test", QUICK)
    signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
    agent.run()


if __name__ == "__main__":
    _main()
