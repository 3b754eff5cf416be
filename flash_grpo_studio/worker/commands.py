"""`flash-grpo worker`: takes jobs from the queue and runs them on this machine's devices."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from flash_grpo.errors import InputError

if TYPE_CHECKING:
    from flash_grpo_studio.worker.agent import Agent


def worker(
    workspace: Annotated[
        Path | None, typer.Option("--workspace", metavar="DIR", help="Workspace of the studio, shared by all machines.")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option("--database-url", metavar="URL", help="Database of the studio.")
    ] = None,
    broker_url: Annotated[
        str | None, typer.Option("--broker-url", metavar="URL", help="Redis that wakes workers; without it they poll.")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", metavar="N", help="Jobs at a time on a machine without GPUs.")] = 1,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="NAMES", help="Devices to offer, as cuda:0,cuda:2."),
    ] = None,
    hang_minutes: Annotated[
        float,
        typer.Option("--hang-minutes", metavar="M", help="A run silent for this long is taken for dead."),
    ] = 15.0,
) -> None:
    """Take jobs from the studio's queue and run them on this machine."""
    from flash_grpo_studio.app.settings import read_settings
    from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
    from flash_grpo_studio.app.store.migrate import upgrade
    from flash_grpo_studio.app.workspace import Workspace
    from flash_grpo_studio.worker.agent import Agent
    from flash_grpo_studio.worker.devices import offered
    from flash_grpo_studio.worker.escalate import Patience
    from flash_grpo_studio.worker.launch import Ground
    from flash_grpo_studio.worker.supervise import Setting

    if hang_minutes <= 0:
        raise InputError(f"expected --hang-minutes above 0, got {hang_minutes:g}")
    settings = read_settings(workspace, database_url, broker_url)
    chosen = offered(slots, devices)
    space = Workspace(settings.workspace)
    token = space.prepare()
    store = Store(settings.database_url)
    _log_plainly()
    log = logging.getLogger(__name__)
    ground = Ground(space, token, socket.gethostname(), max(1, len(chosen)))
    setting = Setting(store, ground, Patience(hang=hang_minutes * 60))
    agent = Agent(setting, chosen, version("flash-grpo-studio"))
    _stop_on_signals(agent.stop, log)
    try:
        store.patiently(lambda: upgrade(store))
    except StoreUnavailable as error:
        raise InputError(f"{error}; start it, or name another with --database-url") from error
    _work(agent, settings.broker_url, log)


def _work(agent: Agent, broker_url: str, log: logging.Logger) -> None:
    """Run the agent, with an ear at the broker if there is one."""
    from flash_grpo_studio.app.settings import without_password
    from flash_grpo_studio.worker.listen import Listener

    if not broker_url:
        log.info("no broker is named, so this worker looks for jobs every few seconds by itself")
        agent.run()
        return
    log.info("listening to %s", without_password(broker_url))
    listener = Listener(broker_url, agent.wake)
    listener.start()
    try:
        agent.run()
    finally:
        listener.stop()


def _stop_on_signals(stop: Callable[[], None], log: logging.Logger) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        log.info("%s: stopping", signal.Signals(number).name)
        stop()

    # Later signals change nothing: a terminal and the studio may both send one, and the way out is bounded anyway.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def _log_plainly() -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    for noisy, level in (("celery", logging.ERROR), ("kombu", logging.ERROR), ("alembic", logging.WARNING)):
        logging.getLogger(noisy).setLevel(level)
