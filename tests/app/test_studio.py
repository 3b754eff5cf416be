"""The studio command as a person uses it: one start, one Ctrl-C, nothing left."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from flash_grpo_studio.app.store.tables import DeviceLease, Worker
from tests.chaos import running_studio, submit, tagged
from tests.databases import free_port


def family(process: int) -> list[psutil.Process]:
    return [psutil.Process(process), *psutil.Process(process).children(recursive=True)]


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def refused(*arguments: str) -> str:
    command = [sys.executable, "-m", "flash_grpo.cli", "studio", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_everything_also_with_a_job_at_work(tmp_path: Path, number: signal.Signals) -> None:
    with running_studio(tmp_path / "workspace") as studio:
        ids = submit(studio, 1, {"updates": 500})
        deadline = time.monotonic() + 60
        while not tagged(ids):
            assert time.monotonic() < deadline, "the job was not started"
            time.sleep(0.1)
        everything = [*family(studio.process.pid), *tagged(ids)]
        assert len(everything) >= 5  # studio, broker, web app, worker, training
        studio.process.send_signal(number)
        assert studio.process.wait(60) == 0
        _, left = psutil.wait_procs(everything, timeout=5)
        assert left == []
        assert not listening(studio.port)
        with studio.store().reading() as session:
            assert session.query(DeviceLease).count() == 0
            assert {worker.state for worker in session.query(Worker)} == {"gone"}
    with running_studio(tmp_path / "workspace") as again:  # the job goes on by itself
        deadline = time.monotonic() + 60
        while not tagged(ids):
            assert time.monotonic() < deadline, "the job did not go on"
            time.sleep(0.1)
        answer = again.ask("POST", f"/jobs/{ids[0]}/cancel")
        assert answer.json()["state"] in ("cancelling", "cancelled")


def test_parts_that_are_there_already_are_used(tmp_path: Path, broker_url: str, postgres_server: object) -> None:
    url = postgres_server.create()  # type: ignore[attr-defined]
    options = ("--database-url", url, "--broker-url", broker_url, "--no-worker")
    with running_studio(tmp_path / "workspace", *options) as studio:
        names = [" ".join(process.cmdline()) for process in family(studio.process.pid)]
        assert not any("valkey-server" in name or "cli worker" in name for name in names)
        health = studio.ask("GET", "/health").json()
        assert health["status"] == "degraded"
        assert "none is running" in health["workers"]["message"]
        job = studio.ask("POST", "/jobs", json={"preset": "micro"}).json()
        assert "no worker is running" in job["waiting_reason"]
        assert not (tmp_path / "workspace" / "studio.db").exists()
        assert not (tmp_path / "workspace" / "broker").exists()


def test_a_second_studio_on_one_workspace_names_the_first(tmp_path: Path) -> None:
    with running_studio(tmp_path / "workspace") as studio:
        said = refused("--workspace", str(tmp_path / "workspace"), "--port", str(free_port()))
        assert f"at http://127.0.0.1:{studio.port}" in said
        assert "choose another with --port" in refused(
            "--workspace", str(tmp_path / "other"), "--port", str(studio.port)
        )


def test_beyond_the_loopback_it_wants_a_login_first(tmp_path: Path) -> None:
    workspace, port = str(tmp_path / "workspace"), str(free_port())
    assert "flash-grpo user add" in refused("--workspace", workspace, "--host", "0.0.0.0", "--port", port)
    command = [
        sys.executable,
        "-m",
        "flash_grpo.cli",
        "user",
        "add",
        "ann",
        "--role",
        "admin",
        "--workspace",
        workspace,
    ]
    done = subprocess.run(command, input="correct horse battery\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with running_studio(tmp_path / "workspace", "--host", "0.0.0.0", "--no-worker") as studio:
        base = f"http://127.0.0.1:{studio.port}/api/v1"
        assert httpx.get(f"{base}/jobs").status_code == 401
        with httpx.Client(base_url=base) as client:
            answer = client.post("/login", json={"name": "ann", "password": "correct horse battery"})
            assert answer.status_code == 200, answer.text
            assert client.get("/jobs").status_code == 200


def test_the_password_of_the_embedded_broker_is_in_no_log_and_no_command_line(tmp_path: Path) -> None:
    with running_studio(tmp_path / "workspace") as studio:
        conf = (tmp_path / "workspace" / "broker" / "valkey.conf").read_text()
        password = next(line.split()[1] for line in conf.splitlines() if line.startswith("requirepass"))
        assert (tmp_path / "workspace" / "broker" / "valkey.conf").stat().st_mode & 0o077 == 0
        assert all(password not in " ".join(process.cmdline()) for process in family(studio.process.pid))
        studio.ask("GET", "/health")
    for log in [*(tmp_path / "workspace" / "logs").iterdir(), tmp_path / "workspace.log"]:
        assert password not in log.read_text(), f"{log.name} holds the broker's password"
