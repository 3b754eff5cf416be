"""Chaos: a real studio whose parts are killed at seeded random moments, and what must hold when the dust settles."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from sqlalchemy import select

from flash_grpo.events import Record, read_events
from flash_grpo_studio.app.jobs.states import ENDED
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Attempt, DeviceLease, Event, Job, Metric
from flash_grpo_studio.app.workspace import Workspace
from tests.databases import free_port

TAG = "FLASH_GRPO_JOB"
TARGETS = {"worker": "flash_grpo.cli worker", "web app": "flash_grpo_studio.app.api", "broker": "valkey-server"}
OVERRIDES: dict[str, Any] = {
    "updates": 8,
    "checkpoint_every": 2,
    "evaluate_every": 4,
    "validation_limit": 4,
    "heldout_limit": 4,
    "videos_saved": 2,
    "threads": 1,
}


@dataclass
class Studio:
    """A running `flash-grpo studio`."""

    process: subprocess.Popen[bytes]
    workspace: Workspace
    port: int
    ids: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def client(self) -> httpx.Client:
        """A client of its API; a web app that is being restarted is waited for."""
        transport = httpx.HTTPTransport(retries=0)
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1", transport=transport, timeout=30, trust_env=False
        )

    def ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        """One request, again while the web app is away (requests carry an idempotency key, so twice is once)."""
        deadline = time.monotonic() + 60
        while True:
            try:
                with self.client as client:
                    answer = client.request(method, path, **body)
                if answer.status_code < 500:
                    return answer
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"{method} {path} was not answered for a minute"
            time.sleep(0.2)

    def store(self) -> Store:
        """The studio's database, looked at beside it."""
        return Store(f"sqlite:///{self.workspace.folder}/studio.db")

    def part(self, target: str) -> psutil.Process | None:
        """The process of a part; None while it is not there."""
        if target == "training":
            return next(iter(tagged(self.ids)), None)
        for child in psutil.Process(self.process.pid).children():
            try:
                if TARGETS[target] in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                    return child
            except psutil.NoSuchProcess:
                continue
        return None

    def kill(self, target: str) -> bool:
        """SIGKILL a part; False if it is not there at this moment."""
        found = self.part(target)
        if found is None:
            return False
        try:
            found.kill()
        except psutil.NoSuchProcess:
            return False
        self.kills[target] += 1
        return True


def tagged(ids: Sequence[str]) -> list[psutil.Process]:
    """Living processes started for these jobs."""
    found = []
    for process in psutil.process_iter():
        try:
            tag = process.environ().get(TAG)
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if tag in ids and alive:
            found.append(process)
    return sorted(found, key=lambda process: process.pid)


@contextmanager
def running_studio(folder: Path, *options: str) -> Iterator[Studio]:
    """A studio on a fresh workspace; stopped by Ctrl-C, or killed if it does not stop."""
    port = free_port()
    command = [sys.executable, "-m", "flash_grpo.cli", "studio", "--workspace", str(folder), "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLASH_GRPO_")}
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=output, env=environment)
    studio = Studio(process, Workspace(folder), port)
    try:
        deadline = time.monotonic() + 60
        while b"is at http" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield studio
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def submit(studio: Studio, count: int, overrides: dict[str, Any]) -> list[str]:
    """Queue `count` equal jobs through the API."""
    found = []
    for number in range(count):
        body = {
            "preset": "micro",
            "overrides": overrides,
            "name": f"job {number}",
            "idempotency_key": f"chaos {number}",
        }
        answer = studio.ask("POST", "/jobs", json=body)
        assert answer.status_code in (200, 201), answer.text
        found.append(answer.json()["id"])
    studio.ids = found
    return found


def states(studio: Studio, ids: Sequence[str]) -> dict[str, str]:
    """State of each job by id, from the store itself."""
    with studio.store().reading() as session:
        return dict(session.execute(select(Job.id, Job.state).where(Job.id.in_(ids))).tuples().all())


def rage(studio: Studio, ids: Sequence[str], kills: int, seed: int, pauses: tuple[float, float]) -> None:
    """Kill parts at random, in turn so that each gets its share, until `kills` are done or all jobs have ended."""
    choose = random.Random(seed)
    order: list[str] = []
    while sum(studio.kills.values()) < kills:
        if all(state in ENDED for state in states(studio, ids).values()):
            return
        if not order:
            order = [*TARGETS, "training"]
            choose.shuffle(order)
        time.sleep(choose.uniform(*pauses))
        if studio.kill(order[-1]):
            order.pop()


def wait_for_end(studio: Studio, ids: Sequence[str], seconds: float) -> None:
    """Wait until every job has ended."""
    deadline = time.monotonic() + seconds
    while not all(state in ENDED for state in states(studio, ids).values()):
        assert time.monotonic() < deadline, f"jobs still not ended: {states(studio, ids)}"
        time.sleep(0.5)


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs: ended once, lost (never ended), duplicated (ended or started twice at one time)."""

    jobs: int
    ended_once: int
    lost: int
    duplicated: int
    problems: list[str]
    updates_lost: list[int]
    kills: dict[str, int]


def judge(studio: Studio, ids: Sequence[str], updates: int) -> Outcome:
    """Hold the store against the run folders, and every job against the others: equal jobs must measure the same."""
    problems: list[str] = []
    lost, duplicated, measured, gaps = set(), set(), {}, []
    with studio.store().reading() as session:
        for id_ in ids:
            job = session.get_one(Job, id_)
            ends = _state_events(session, id_)
            if job.state not in ENDED or len(ends) == 0:
                lost.add(id_)
            if len(ends) > 1:
                duplicated.add(id_)
            if job.state != "succeeded":
                problems.append(f"{id_} is {job.state}: {job.message}")
            good = session.scalars(select(Attempt).where(Attempt.job_id == id_, Attempt.outcome == "succeeded")).all()
            if len(good) != 1:
                duplicated.add(id_)
            rows = session.execute(select(Metric.update, Metric.values).where(Metric.job_id == id_)).tuples().all()
            raw = read_events(studio.workspace.run(id_), fold=False)
            problems += _compare(id_, dict(rows), raw, studio.workspace.run(id_), updates)
            measured[id_] = _values(read_events(studio.workspace.run(id_)))
            gaps += _gaps(raw)
            told = session.scalars(select(Event.seq).where(Event.job_id == id_, Event.seq.is_not(None))).all()
            if len(told) != len(set(told)):
                duplicated.add(id_)
        leases = session.scalars(select(DeviceLease)).all()
    problems += [f"a lease of {lease.device} is left to {lease.job_id}" for lease in leases]
    problems += [f"process {process.pid} is left" for process in tagged(ids)]
    first = next(iter(measured.values()))
    problems += [f"{id_} measured something else than {ids[0]}" for id_, found in measured.items() if found != first]
    once = len(ids) - len(lost | duplicated)
    return Outcome(len(ids), once, len(lost), len(duplicated), problems, gaps, dict(studio.kills))


def _state_events(session: Any, id_: str) -> list[str]:
    query = select(Event).where(Event.job_id == id_, Event.type == "state")
    return [event.data["to"] for event in session.scalars(query) if event.data["to"] in ENDED]


def _compare(id_: str, rows: dict[int, bytes], raw: Sequence[Record], folder: Path, updates: int) -> list[str]:
    problems = []
    if sorted(rows) != list(range(1, updates + 1)):
        problems.append(f"{id_} has metrics of updates {sorted(rows)} in the store")
    folded = [record.update for record in read_events(folder) if record.type == "metrics"]
    if folded != list(range(1, updates + 1)):
        problems.append(f"{id_} has metrics of updates {folded} in its log")
    if sum(record.type == "finished" and record.data["status"] == "done" for record in raw) != 1:
        problems.append(f"{id_} did not finish exactly once")
    return problems


def _values(records: Sequence[Record]) -> list[tuple[int | None, Any, Any]]:
    """What equal runs must agree on to the last bit; times and memory differ."""
    return [(r.update, r.data["rewards"], r.data["grad_norm"]) for r in records if r.type == "metrics"]


def _gaps(raw: Sequence[Record]) -> list[int]:
    """Updates done anew after each resumption."""
    found, last = [], 0
    for record in raw:
        if record.type == "metrics" and record.update is not None:
            last = record.update
        elif record.type == "resumed":
            found.append(max(0, last - int(record.data["from_update"])))
            last = int(record.data["from_update"])
    return found
