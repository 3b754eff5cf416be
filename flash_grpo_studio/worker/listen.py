"""The worker's ear: a Celery worker in a thread of this process, whose one task says "look at the store"."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from flash_grpo_studio.app.jobs.dispatch import LOOK

log = logging.getLogger(__name__)
_AGAIN_SECONDS = 5.0
_QUIET_SECONDS = 300.0


class _Calm(logging.Filter):
    """Of Celery's words about a broker that is away, one line now and then instead of three at every try."""

    def __init__(self) -> None:
        super().__init__()
        self._told = -_QUIET_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let a record through; shortens it."""
        now = time.monotonic()
        if now - self._told < _QUIET_SECONDS:
            return False
        self._told = now
        first = record.getMessage().splitlines()[0].rstrip(".")
        record.msg, record.args = f"{first}; this worker looks for jobs by itself until it is back", ()
        record.exc_info = None
        return True


class Listener:
    """Wakes the worker when a message comes. A broker that is away is tried again for ever; the worker polls anyway.

    Pool `solo`: nothing is forked, as a forked child could not use what this process holds, and the task is a flag.
    """

    def __init__(self, broker_url: str, wake: Callable[[], None]) -> None:
        self.broker_url, self.wake = broker_url, wake
        self._stopping = threading.Event()
        self._controller: Any = None
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        consumer = logging.getLogger("celery.worker.consumer.consumer")
        if not any(isinstance(known, _Calm) for known in consumer.filters):
            consumer.addFilter(_Calm())
        self._thread.start()

    def stop(self, seconds: float = 3.0) -> None:
        """End. A thread that is just waiting for an absent broker ends with the process."""
        from celery.worker import state

        self._stopping.set()
        state.should_stop = 0  # type: ignore[assignment]
        self._thread.join(seconds)

    def _run(self) -> None:
        from celery.worker import state

        state.should_stop = None
        while not self._stopping.is_set():
            try:
                self._serve()
            except Exception as error:
                log.warning("cannot listen to the broker: %s", error)
            if not self._stopping.wait(_AGAIN_SECONDS):
                log.info("listening to the broker again")

    def _serve(self) -> None:
        from flash_grpo_studio.app.jobs.broker import celery_app

        app = celery_app(self.broker_url)
        app.conf.update(
            broker_connection_retry=True,
            broker_connection_max_retries=None,
            worker_enable_remote_control=False,
            worker_pool="solo",
        )
        app.task(name=LOOK, ignore_result=True, shared=False)(self._look)
        app.finalize()
        controller = app.WorkController(
            app=app,
            pool="solo",
            concurrency=1,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            hostname=None,
        )
        controller.start()

    def _look(self) -> None:
        self.wake()
