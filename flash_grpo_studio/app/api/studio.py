"""The parts that routes work with, and the thread that keeps house beside them."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy import select

from flash_grpo_studio.app.accounts import Accounts
from flash_grpo_studio.app.api.limits import Limits
from flash_grpo_studio.app.api.neutral import Neutrals
from flash_grpo_studio.app.jobs.dispatch import Dispatch
from flash_grpo_studio.app.jobs.service import JobService
from flash_grpo_studio.app.jobs.workers import Watch
from flash_grpo_studio.app.settings import Settings, without_password
from flash_grpo_studio.app.store.belonging import belong_together
from flash_grpo_studio.app.store.curves import Curves
from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
from flash_grpo_studio.app.store.migrate import upgrade
from flash_grpo_studio.app.store.pairs import Pairs
from flash_grpo_studio.app.store.secret import shared_secret
from flash_grpo_studio.app.workspace import Workspace

if TYPE_CHECKING:
    from flash_grpo_studio.app.api.feed import Feed

log = logging.getLogger("flash_grpo_studio.api")
ROUND_SECONDS = 3.0
MEDIA_SECRET = "media_secret"
OLD_PART_SECONDS = 86400.0


class Studio:
    """Store, workspace, job service and the rest, made once per process."""

    feed: Feed

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self.settings, self.limits = settings, limits
        self.workspace = Workspace(settings.workspace)
        self.token = self.workspace.prepare()
        self.store = Store(settings.database_url)
        self.dispatch = Dispatch(settings.broker_url)
        self.jobs = JobService(self.store, self.workspace, self.dispatch.announce)
        self.accounts = Accounts(self.store)
        self.curves = Curves()
        self.pairs = Pairs()
        self.neutrals = Neutrals()
        self.housekeeping = Housekeeping(self)

    @cached_property
    def media_secret(self) -> bytes:
        """By which the addresses of ballots' videos are signed, the same in every process of the studio."""
        return shared_secret(self.store, MEDIA_SECRET)

    def database_problem(self) -> str | None:
        """None if the database answers, else a sentence."""
        try:
            with self.store.reading() as session:
                session.execute(select(1))
        except StoreUnavailable as error:
            return str(error)
        return None if self.housekeeping.ready else "the database's tables are not prepared yet"


class Housekeeping:
    """A thread that looks for silent workers, sends messages that could not be sent, and tries the broker.

    It survives whatever is away: what it does is done again in the next round.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.watch = Watch(studio.store)
        self.ready = False
        self.broker = "none" if not studio.settings.broker_url else "not tried yet"
        self.broker_ok: bool | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: dict[str, str] = {}

    def prepare(self) -> None:
        """Bring the tables to this version; raises StoreUnavailable or InputError."""
        studio = self.studio
        upgrade(studio.store)
        belong_together(studio.store, studio.token, studio.workspace.folder)
        self.ready = True

    def start(self) -> None:
        """Begin the rounds."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._rounds, name="housekeeping", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present round, at most a moment later."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=0.5)

    def _rounds(self) -> None:
        self._do("uploads", self._clear_uploads)
        while not self._stop.wait(0.5 if self.broker_ok is None else ROUND_SECONDS):
            if not self.ready:
                self._do("tables", self.prepare)
            if self.ready:
                self._do("watch", self._look)
                self._do("messages", lambda: self.studio.dispatch.catch_up(self.studio.store))
                self._do("credentials", self.studio.accounts.note_use)
            self._do("broker", self._try_broker)

    def _do(self, what: str, work: object) -> None:
        """Do a part of the round; a trouble is told once, not in every round."""
        assert callable(work)
        try:
            work()
        except StoreUnavailable as error:
            self._say(what, str(error))
        except Exception as error:  # the thread must outlive whatever goes wrong in a round
            if self._said.get(what) != repr(error):
                log.exception("housekeeping (%s) failed and is tried again", what)
            self._said[what] = repr(error)
        else:
            self._said.pop(what, None)

    def _say(self, what: str, sentence: str) -> None:
        if self._said.get(what) != sentence:
            log.warning("%s", sentence)
        self._said[what] = sentence

    def _look(self) -> None:
        for job_id in self.watch.look():
            log.warning("the worker of job %s has gone silent", job_id)

    def _try_broker(self) -> None:
        url = self.studio.settings.broker_url
        if not url:
            self.broker_ok = True  # workers look at the store by themselves
            return
        from flash_grpo_studio.app.jobs.broker import celery_app

        try:
            with celery_app(url).connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, timeout=3)
        except Exception as error:  # kombu's transports raise errors of their own kinds
            self.broker_ok, self.broker = False, f"{without_password(url)} does not answer"
            self._say("broker", f"the broker {self.broker} ({type(error).__name__})")
        else:
            self.broker_ok, self.broker = True, "answers"

    def _clear_uploads(self) -> None:
        """Remove what uploads and deletions that were cut off have left."""
        for part in (self.studio.workspace.folder / "uploads").glob(".*.part"):
            if part.stat().st_mtime < time.time() - OLD_PART_SECONDS:
                part.unlink(missing_ok=True)
        for folder in (self.studio.workspace.folder / "trash").iterdir():
            shutil.rmtree(folder)  # of a job whose deletion was cut off after its row was gone
