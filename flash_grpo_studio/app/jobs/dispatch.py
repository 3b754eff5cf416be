"""Waking the workers by a Celery message. It carries nothing: it only says "look at the store"."""

from __future__ import annotations

import logging
import threading
from typing import Any

from kombu.exceptions import OperationalError
from sqlalchemy import func, select, update

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Job

LOOK = "flash_grpo.look"
"""Name of the Celery task; the worker's code is never imported here."""
EXCHANGE = "flash_grpo.look"


class Dispatch:
    """Sends the message. A broker that is away costs a wake-up, never a job: workers look by themselves now and then,
    and `catch_up` sends what could not be sent.
    """

    def __init__(self, broker_url: str) -> None:
        self.broker_url = broker_url
        self._celery: Any = None
        self._lock = threading.Lock()

    def announce(self) -> bool:
        """Tell all workers to look at the store; False if the broker cannot be reached."""
        if not self.broker_url:
            return False
        try:
            with self._lock:
                self._send()
        except (OperationalError, OSError) as error:
            logging.getLogger(__name__).warning("the broker is away, workers will look by themselves: %s", error)
            return False
        return True

    def _send(self) -> None:
        from flash_grpo_studio.app.jobs.broker import fan_out

        where = fan_out()
        self._app().send_task(
            LOOK, exchange=where, declare=[where], routing_key=EXCHANGE, retry=False, ignore_result=True, expires=60
        )

    def _app(self) -> Any:
        if self._celery is None:
            from flash_grpo_studio.app.jobs.broker import celery_app

            self._celery = celery_app(self.broker_url)
        return self._celery

    def catch_up(self, store: Store) -> bool:
        """Send what could not be sent when jobs were submitted; returns whether a message went out."""
        waiting = (Job.state == "queued") & Job.announced.is_(False)
        with store.reading() as session:
            missing = session.scalar(select(func.count()).select_from(Job).where(waiting))
        if not missing or not self.announce():
            return False
        with store.writing() as session:
            session.execute(update(Job).where(waiting).values(announced=True))
        return True
