"""The server as its own process: its start and end, streams, uploads of any size, a database that goes away."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from flash_grpo_studio.app.jobs.leases import claim
from flash_grpo_studio.app.jobs.workers import register
from flash_grpo_studio.app.settings import normal_database_url
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Job
from tests.app.web import MP4
from tests.databases import PostgresServer, free_port

MB = 2**20


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    port: int
    log: Path
    started_in: float

    def submit(self, **values: Any) -> str:
        answer = self.client.post("/jobs", json={"preset": "micro", **values})
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["id"]
        return found

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Seconds it took to end."""
        start = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait(20)
        return time.perf_counter() - start


@contextmanager
def serving(folder: Path, database_url: str, **variables: str) -> Iterator[Server]:
    port, log = free_port(), folder / "log.txt"
    environment = {
        **os.environ,
        "FLASH_GRPO_WORKSPACE": str(folder / "workspace"),
        "FLASH_GRPO_DATABASE_URL": database_url,
        "FLASH_GRPO_PORT": str(port),
        "FLASH_GRPO_BROKER_URL": "",
        **variables,
    }
    start = time.perf_counter()
    with log.open("wb") as output:
        command = [sys.executable, "-m", "flash_grpo_studio.app.api"]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30)
    try:
        wait_for(lambda: answers(client, process, log), 30)
        yield Server(process, client, port, log, time.perf_counter() - start)
    finally:
        client.close()
        if process.poll() is None:
            process.kill()
        process.wait(10)


def answers(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text(encoding="utf-8")
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float, pause: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)


class Listener:
    """Reads a stream in a thread; the events as (name, data, id)."""

    def __init__(self, server: Server, path: str, **headers: str) -> None:
        self.events: queue.Queue[tuple[str, Any, str | None]] = queue.Queue()
        self.ended = threading.Event()
        self.client = httpx.Client(base_url=server.client.base_url, timeout=30)
        self._thread = threading.Thread(target=self._read, args=(path, headers), daemon=True)
        self._thread.start()

    def _read(self, path: str, headers: dict[str, str]) -> None:
        name, data, id_ = "", "", None
        try:
            with self.client.stream("GET", path, headers=headers) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                for line in response.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "id":
                        id_ = value
                    elif field == "data":
                        data = value
                    elif not line and data:
                        self.events.put((name, json.loads(data), id_))
                        name, data, id_ = "", "", None
        except httpx.TransportError:
            pass  # the server ended
        self.ended.set()

    def next(self, wanted: str, seconds: float = 5.0) -> tuple[Any, str | None]:
        """The next event of a name; others are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            name, data, id_ = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            if name == wanted:
                return data, id_


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'studio.db'}"


@pytest.fixture
def server(tmp_path: Path, sqlite_url: str) -> Iterator[Server]:
    with serving(tmp_path, sqlite_url) as started:
        yield started


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, f"sqlite:///{folder / 'studio.db'}") as started:
        yield started


def test_it_starts_quickly_and_is_light(lasting_server: Server) -> None:
    memory = psutil.Process(lasting_server.process.pid).memory_info().rss / MB
    times = []
    for _ in range(20):
        start = time.perf_counter()
        assert lasting_server.client.get("/jobs").status_code == 200
        times.append(time.perf_counter() - start)
    print(
        f"first answer after {lasting_server.started_in:.2f} s, {memory:.0f} MB, list {1000 * sorted(times)[10]:.1f} ms"
    )
    assert lasting_server.started_in < 10  # 1.2 s on an idle machine
    assert min(times) < 0.035  # with Nagle's delay every answer takes 40 ms


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_with_open_streams_and_without_a_traceback(server: Server, number: int) -> None:
    listeners = [Listener(server, "/stream") for _ in range(5)]
    for listener in listeners:
        listener.next("hello")
    seconds = server.stop(number)
    print(f"ended {seconds:.2f} s after signal {number}")
    assert seconds < 6  # 0.2 s on an idle machine; a stream that is not ended lasts as long as its client
    for listener in listeners:
        assert listener.ended.wait(5)
    log = server.log.read_text(encoding="utf-8")
    assert "Traceback" not in log and "Error" not in log, log


def test_streams_tell_what_happens_and_resume_after_what_was_seen(server: Server, sqlite_url: str) -> None:
    job = server.submit(name="watched")
    everything, one = Listener(server, "/stream"), Listener(server, f"/jobs/{job}/stream")
    everything.next("hello")
    first, _ = one.next("job")
    assert (first["id"], first["state"]) == (job, "queued")
    other = server.submit(name="other")
    data, _ = everything.next("state")
    assert (data["job_id"], data["data"]["to"]) == (other, "queued")
    server.client.post(f"/jobs/{job}/pause")
    data, seen = one.next("state")
    assert (data["job_id"], data["data"]["to"]) == (job, "paused")
    assert seen is not None
    server.client.post(f"/jobs/{job}/resume")
    server.client.patch(f"/jobs/{job}", json={"name": "new"})
    again = Listener(server, f"/jobs/{job}/stream", **{"Last-Event-ID": seen})
    again.next("job")
    resumed, _ = again.next("state")
    edited, _ = again.next("event")
    assert (resumed["data"]["to"], edited["type"]) == ("queued", "edited")
    server.client.delete(f"/jobs/{other}")
    deleted, _ = everything.next("deleted")
    assert deleted["job_id"] == other
    progress(server, sqlite_url, everything, job)


def progress(server: Server, sqlite_url: str, listener: Listener, job: str) -> None:
    """An active job's progress is told when it changes, not more often than twice a second."""
    store = Store(sqlite_url)
    worker = register(store, "here", 1, 1.0, "test", [{"name": "cpu:0"}], {})
    claimed = claim(store, worker)
    assert claimed is not None and claimed.job_id == job
    listener.next("progress")
    start, told = time.monotonic(), 0
    for update in range(1, 11):
        with store.writing() as session:
            session.get_one(Job, job).update = update
        time.sleep(0.1)
    while True:
        data, _ = listener.next("progress")
        told += 1
        if data["progress"]["update"] == 10:
            break
    assert told <= 2 * (time.monotonic() - start) + 1
    store.close()


def test_a_stream_tells_only_what_one_may_see_and_ends_with_the_right_to_look(server: Server, sqlite_url: str) -> None:
    boss: dict[str, str] = {}
    for name, role in (("boss", "admin"), ("bob", "creator")):
        added = server.client.post("/users", json={"name": name, "role": role, "password": "a password"}, headers=boss)
        assert added.status_code == 201
        answer = httpx.post(f"{server.client.base_url}login", json={"name": name, "password": "a password"})
        cookie = {"Cookie": f"flash_grpo_session={answer.cookies['flash_grpo_session']}"}
        boss = cookie if name == "boss" else boss
    bob = cookie
    made = {
        name: server.client.post("/jobs", json={"preset": "micro", "name": name}, headers=who).json()["id"]
        for name, who in (("of bob", bob), ("of boss", boss))
    }
    assert server.client.get(f"/jobs/{made['of boss']}/stream", headers=bob).status_code == 404
    assert server.client.get("/stream").status_code == 401
    listener = Listener(server, "/stream", **bob)
    listener.next("hello")
    for job_id, who in ((made["of boss"], boss), (made["of bob"], bob)):
        assert server.client.post(f"/jobs/{job_id}/pause", headers=who).status_code == 200
    data, _ = listener.next("state")
    assert data["job_id"] == made["of bob"]


def test_twenty_watchers_do_not_slow_a_click_down(server: Server) -> None:
    listeners = [Listener(server, "/stream") for _ in range(20)]
    for listener in listeners:
        listener.next("hello")
    job = server.submit()
    for listener in listeners:
        assert listener.next("state")[0]["job_id"] == job
    times = []
    for _ in range(10):
        start = time.perf_counter()
        assert server.client.get("/jobs").status_code == 200
        times.append(time.perf_counter() - start)
    assert sorted(times)[5] < 1


def test_large_uploads_pass_or_are_refused_in_little_memory(lasting_server: Server) -> None:
    process = psutil.Process(lasting_server.process.pid)
    before = process.memory_info().rss
    start = time.perf_counter()
    status, sent = send_slowly(lasting_server, "/api/v1/uploads", b"MZ" + b"\0" * 1000, 200 * MB)
    assert (status, time.perf_counter() - start < 5, sent < 50 * MB) == (415, True, True)
    status, sent = send_slowly(lasting_server, "/api/v1/uploads", MP4, 900 * MB)
    assert status == 413 and sent < 50 * MB
    status, _ = send_slowly(lasting_server, "/api/v1/uploads", MP4, 200 * MB, to_the_end=True)
    assert status == 201
    grown = (process.memory_info().rss - before) / MB
    assert grown < 40, f"it grew by {grown:.0f} MB"


def send_slowly(server: Server, path: str, start: bytes, total: int, to_the_end: bool = False) -> tuple[int, int]:
    """Send a form of a size and stop as soon as an answer comes; its status and how much was sent."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.mp4"\r\n\r\n' + start
    tail = b"\r\n--x--\r\n"
    lines = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {total}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(f"{lines}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode() + head)
        sent, answer = len(head), b""
        zeros = b"\0" * MB
        while sent < total - len(tail):
            count = min(MB, total - len(tail) - sent)
            connection.sendall(zeros[:count])
            sent += count
            if not to_the_end:
                connection.settimeout(0.001)
                try:
                    answer = connection.recv(65536)
                    break
                except TimeoutError:
                    connection.settimeout(30)
        if not answer:
            connection.sendall(tail)
            answer = connection.recv(65536)
    return int(answer.split()[1]), sent


def test_a_video_is_served_in_parts_over_the_wire(lasting_server: Server) -> None:
    content = MP4 + os.urandom(3 * MB)
    made = lasting_server.client.post("/uploads", files={"file": ("a.mp4", content)}).json()
    url = f"/files/{made['id']}/content"
    assert lasting_server.client.get(url).content == content
    part = lasting_server.client.get(url, headers={"Range": f"bytes={MB}-{2 * MB - 1}"})
    assert (part.status_code, part.content) == (206, content[MB : 2 * MB])


def test_a_locked_database_is_said_and_survived(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path, sqlite_url) as server:
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answer.append(server.client.post("/jobs", json={"preset": "micro"})))
        thread.start()
        time.sleep(0.5)
        assert server.client.get("/jobs").status_code == 200  # reading goes on
        other.execute("ROLLBACK")
        thread.join(30)
        assert answer[0].status_code == 201
        other.close()


def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = normal_database_url(postgres_server.create())
    with serving(tmp_path, url) as server:
        job = server.submit()
        listener = Listener(server, "/stream")
        listener.next("hello")
        postgres_server.stop()
        try:
            health = server.client.get("/health").json()
            assert (health["status"], health["database"]["ok"]) == ("degraded", False)
            away = server.client.get("/jobs")
            assert (away.status_code, away.json()["error"]["code"]) == (503, "unavailable")
            assert away.headers["retry-after"]
            time.sleep(1)
        finally:
            postgres_server.start()
        wait_for(lambda: server.client.get("/jobs").status_code == 200, 15, 0.2)
        assert server.client.post(f"/jobs/{job}/pause").status_code == 200
        assert listener.next("state", 15)[0]["data"]["to"] == "paused"
        assert server.stop() < 6


def test_it_starts_before_its_database_does(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = normal_database_url(postgres_server.create())
    postgres_server.stop()
    try:
        with serving(tmp_path, url) as server:
            assert server.client.get("/health").json()["database"]["ok"] is False
            assert server.client.get("/jobs").status_code == 503
            postgres_server.start()
            wait_for(lambda: server.client.get("/jobs").status_code == 200, 20, 0.2)
            server.submit()
    finally:
        if server.process.poll() is None:
            server.process.kill()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FLASH_GRPO_HOST": "0.0.0.0"}, "flash-grpo user add"),
        ({"FLASH_GRPO_HOST": "no.such.host.invalid", "WITH_USER": "1"}, "cannot serve on no.such.host.invalid"),
        ({"FLASH_GRPO_MAX_VIDEO_MB": "many"}, "whole number of megabytes"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(
    tmp_path: Path, sqlite_url: str, variables: dict[str, str], said: str
) -> None:
    environment = {**os.environ, "FLASH_GRPO_WORKSPACE": str(tmp_path / "w"), "FLASH_GRPO_DATABASE_URL": sqlite_url}
    if "WITH_USER" in variables:
        from flash_grpo_studio.app.accounts import Accounts
        from flash_grpo_studio.app.store.migrate import upgrade

        store = Store(sqlite_url)
        upgrade(store)
        Accounts(store).add("ann", "admin", "a password")
    command = [sys.executable, "-m", "flash_grpo_studio.app.api"]
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_taken_port_is_one_sentence(tmp_path: Path, sqlite_url: str, lasting_server: Server) -> None:
    environment = {**os.environ, "FLASH_GRPO_WORKSPACE": str(tmp_path / "w"), "FLASH_GRPO_DATABASE_URL": sqlite_url}
    command = [sys.executable, "-m", "flash_grpo_studio.app.api"]
    variables = {**environment, "FLASH_GRPO_PORT": str(lasting_server.port)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"port {lasting_server.port}" in done.stderr
