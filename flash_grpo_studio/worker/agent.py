"""The worker: enters itself into the store, shows that it lives, claims jobs, and has a thread supervise each."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.jobs.leases import Claim, claim
from flash_grpo_studio.app.store.belonging import belong_together
from flash_grpo_studio.app.store.engine import StoreUnavailable
from flash_grpo_studio.app.store.tables import Job, Worker
from flash_grpo_studio.worker import devices as machine
from flash_grpo_studio.worker.processes import alive, birth
from flash_grpo_studio.worker.reconcile import Reconciler
from flash_grpo_studio.worker.supervise import Setting, Supervisor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks at the queue, at other workers' signs of life, and around for what was left behind."""

    poll: float = 2.0
    watch: float = 5.0
    reconcile: float = 10.0
    beat: float = workers.BEAT_SECONDS
    facts: float = 10.0


@dataclass
class Agent:
    """One worker. `run` blocks until `stop`, which any thread or signal handler may call."""

    setting: Setting
    devices: Sequence[machine.Device]
    version: str
    pace: Pace = field(default_factory=Pace)
    worker_id: str = ""
    _wake: threading.Event = field(default_factory=threading.Event)
    _gone: threading.Event = field(default_factory=threading.Event)
    _hands: dict[str, threading.Thread] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _away: bool = False

    def __post_init__(self) -> None:
        self.store, self.ground = self.setting.store, self.setting.ground
        self.reconciler = Reconciler(self.store, self.ground)
        self.watch = workers.Watch(self.store)

    def wake(self) -> None:
        """Look at the store soon."""
        self._wake.set()

    def stop(self) -> None:
        """Take nothing new, let the runs save and end, then return from `run`."""
        self.setting.stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Work until stopped. Raises InputError if this worker does not fit the studio."""
        self._enter()
        beat = threading.Thread(target=self._beat, name="beat", daemon=True)
        beat.start()
        try:
            while not self.setting.stopping.is_set():
                self._tick()
                self._wake.wait(self.pace.poll)
                self._wake.clear()
        finally:
            self.stop()  # an error must not leave runs with a worker that only seems alive
            self._leave()
            beat.join(self.pace.beat + 1)

    # being there -------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Register, as soon as the database is there."""
        while not self.setting.stopping.is_set():
            try:
                check_fit(self.setting, self.version, self.pace.beat)
                self._register()
                return
            except StoreUnavailable as error:
                log.warning("waiting: %s", error)
                self.setting.stopping.wait(self.pace.poll)

    def _register(self) -> None:
        process = os.getpid()
        facts = self._facts()
        plain = [device.plain() for device in self.devices]
        self.worker_id = workers.register(
            self.store, self.ground.host, process, birth(process) or 0.0, self.version, plain, facts
        )
        self._gone.clear()
        self._last.clear()
        names = ", ".join(device.name for device in self.devices) or "no device"
        log.info("worker %s on %s offers %s", self.worker_id, self.ground.host, names)

    def _facts(self) -> dict[str, object]:
        with_gpus = any(device.kind == "cuda" for device in self.devices)
        return {**machine.facts(self.ground.workspace, with_gpus), "studio": self.ground.studio}

    def _beat(self) -> None:
        """Signs of life, from a thread of its own: no slow launch or look makes this worker seem dead."""
        told = time.monotonic()
        while not self.setting.stopping.wait(self.pace.beat) or self._hands:
            if self.setting.stopping.is_set():
                time.sleep(min(0.5, self.pace.beat))
            try:
                due = time.monotonic() - told >= self.pace.facts
                state = workers.beat(self.store, self.worker_id, self._facts() if due else None)
            except StoreUnavailable:
                continue  # the main loop says so
            except OSError as error:
                log.warning("cannot look at this machine: %s", error)
                continue
            told = time.monotonic() if due else told
            if state == "gone" and not self._gone.is_set() and not self.setting.stopping.is_set():
                log.warning("this worker was given up as dead; it enters itself anew")
                self._gone.set()
                self._wake.set()

    def _leave(self) -> None:
        """Wait for the supervisors, which see `stopping` and let their runs save; then sign off."""
        if self._hands:
            log.info("stopping; %d %s saving", len(self._hands), "job is" if len(self._hands) == 1 else "jobs are")
        for thread in list(self._hands.values()):
            thread.join()
        self._hands.clear()
        try:
            if self.worker_id:
                workers.retire(self.store, self.worker_id)
        except StoreUnavailable as error:
            log.warning("could not sign off: %s", error)
        log.info("worker stopped")

    # working -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """One look at everything."""
        try:
            if self._gone.is_set():
                self._register()
            self._hands = {job: thread for job, thread in self._hands.items() if thread.is_alive()}
            first = not self._last
            around = self._due("reconcile", self.pace.reconcile)
            if around:
                for claimed in self.reconciler.look(self.worker_id, set(self._hands)):
                    self._supervise(claimed, adopted=True)
            while not self.setting.stopping.is_set() and (found := self._claim()) is not None:
                self._supervise(found)
            if around:
                self.reconciler.end_orphans(self.worker_id, set(self._hands), at_start=first)
            if self._due("watch", self.pace.watch):
                self.watch.look()
            if self._away:
                log.info("the database is back")
            self._away = False
        except StoreUnavailable as error:
            if not self._away:
                log.warning("%s; runs go on", error)
            self._away = True

    def _due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now - self._last.get(what, -1e9) < seconds:
            return False
        self._last[what] = now
        return True

    def _claim(self) -> Claim | None:
        """The next job, if any; an empty queue costs a read and no write lock."""
        with self.store.reading() as session:
            if session.scalar(select(Job.id).where(Job.state == "queued").limit(1)) is None:
                return None
        return claim(self.store, self.worker_id)

    def _supervise(self, claimed: Claim, adopted: bool = False) -> None:
        before = self._hands.get(claimed.job_id)
        thread = threading.Thread(target=self._work, args=(claimed, adopted, before), name=f"job-{claimed.job_id}")
        self._hands[claimed.job_id] = thread
        thread.start()

    def _work(self, claimed: Claim, adopted: bool, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # the one before may be ending the process that this one would adopt
        supervisor = Supervisor(self.setting, claimed, adopted)
        try:
            supervisor.run()
        except Exception as error:
            log.exception("job %s: its supervision failed", claimed.job_id)
            supervisor.give_up(error)
        finally:
            self._wake.set()  # devices are free


def check_fit(setting: Setting, version: str, beat: float) -> None:
    """InputError if the database belongs to another workspace, or its living workers run another version."""
    belong_together(setting.store, setting.ground.studio, setting.ground.workspace.folder)
    strangers = _strangers(setting, version)
    if not strangers:
        return
    # Rows of workers that died without a word are no reason to refuse: only who goes on beating counts.
    setting.stopping.wait(3 * beat)
    for id_, (beats, problem) in _strangers(setting, version).items():
        if id_ in strangers and strangers[id_][0] != beats:
            raise InputError(problem)


def _strangers(setting: Setting, version: str) -> dict[str, tuple[int, str]]:
    """Workers that do not fit this one: id -> signs of life so far, and what is wrong."""
    found = {}
    ground = setting.ground
    with setting.store.reading() as session:
        present = session.scalars(select(Worker).where(Worker.state != "gone")).all()
    for worker in present:
        if worker.host == ground.host and not alive(worker.process, worker.process_started):
            continue
        try:
            workers.check_version(version, worker.version)
        except InputError as error:
            found[worker.id] = (worker.beat, str(error))
    return found
