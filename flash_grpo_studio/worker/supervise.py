"""One job on this worker, from its claim to its end: started or adopted, watched, asked, ended, concluded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar, cast

from sqlalchemy import select

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs import attempts
from flash_grpo_studio.app.jobs.change import Fenced, IllegalTransition, move
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.jobs.states import ACTIVE, State
from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
from flash_grpo_studio.app.store.tables import Attempt, Job
from flash_grpo_studio.worker import launch, outputs
from flash_grpo_studio.worker.decide import Case, Reason, Verdict, decide
from flash_grpo_studio.worker.diagnose import Remains
from flash_grpo_studio.worker.escalate import Escalation, Patience
from flash_grpo_studio.worker.living import find_leader
from flash_grpo_studio.worker.memory import kernel_kills
from flash_grpo_studio.worker.paths import inside_out
from flash_grpo_studio.worker.processes import Found, end_politely, family, kill_all
from flash_grpo_studio.worker.tail import Tail, last_ending

log = logging.getLogger(__name__)
Result = TypeVar("Result")
_TRIES = 20
_LONGEST_MESSAGE = 3500


@dataclass(frozen=True)
class View:
    """The job as the store has it."""

    state: State
    message: str
    update: int
    budget: float | None
    device_seconds: float


@dataclass
class Setting:
    """What all supervisors of a worker share. `stopping` is set when the worker has to go."""

    store: Store
    ground: launch.Ground
    patience: Patience = field(default_factory=Patience)
    commands: launch.Commands = launch.command_for
    stopping: threading.Event = field(default_factory=threading.Event)


class Supervisor:
    """Runs in a thread of its own; every write names the claim's fence, so an outdated supervisor changes nothing."""

    def __init__(self, setting: Setting, claim: Claim, adopted: bool = False) -> None:
        self.setting, self.claim, self.adopted = setting, claim, adopted
        self.store, self.ground, self.patience = setting.store, setting.ground, setting.patience
        self.folder = launch.speaks_in(self.ground, claim)
        self.tail = Tail(self.store, claim, self.ground.workspace, self.folder.name)
        self.process: launch.RunProcess | None = None
        self.escalation: Escalation | None = None
        self.launched: launch.LaunchRecord | None = None
        self.output = launch.attempt_folder(self.ground, claim)
        self._noted = self._was_there = False
        self._sign = self._ticked = time.monotonic()
        self._longest_silence = 0.0
        self._kills = kernel_kills()

    def run(self) -> None:
        """The whole way. Leaves the job to others when it is in their hands, or when the store stays away."""
        try:
            problem = self._begin()
            if self.process is not None:
                self._watch(self.process)
            self._conclude(problem)
        except Fenced as error:
            log.warning("job %s: %s", self.claim.job_id, error)
            self._let_go()
        except StoreUnavailable as error:
            log.error("job %s: %s; it is settled when a worker starts again", self.claim.job_id, error)

    # the beginning -----------------------------------------------------------------------------------------------

    def _begin(self) -> str | None:
        """Find the job's living process or start one; returns why that cannot be, as a sentence."""
        claim = self.claim
        leader = find_leader(self.ground, claim)
        if leader is not None:
            self.process = launch.RunProcess(leader.pid, leader.born)
            self._recall(leader.attempt)
            log.info("job %s: adopted its process %d", claim.job_id, leader.pid)
        elif self.adopted:
            self._recall(claim.attempt)
            return None
        else:
            kill_all(self._family)  # an earlier attempt's children may have outlived it
            if problem := self._patiently(self._removed_before):
                return problem
            self._patiently(self.tail.drain)  # what an earlier attempt said belongs before this one
            if launch.is_done(self.ground, claim):
                log.info("job %s: its run has ended already", claim.job_id)
                return None
            try:
                self.process = launch.start(self.ground, claim, self.setting.commands)
            except InputError as error:
                return str(error)
            self._recall(claim.attempt)
            names = ", ".join(claim.devices) or "no device"
            log.info("job %s: attempt %d is process %d on %s", claim.job_id, claim.attempt, self.process.pid, names)
        run = self.folder if claim.kind == "alignment" else None
        self.escalation = Escalation(self.patience, self.process, run, self._kill)
        self._sign = self._ticked = time.monotonic()
        return None

    def _recall(self, attempt: int | None) -> None:
        """How the process at hand was launched, by whichever attempt, and where its output is."""
        number = attempt or self.claim.attempt
        self.output = launch.attempt_folder(self.ground, self.claim, number)
        self.launched = launch.read_launch(self.ground, self.claim, number)

    def _removed_before(self) -> str | None:
        if self.claim.kind != "alignment" or (self.folder / "config.yaml").is_file():
            return None
        update = self._view().update
        if not update:
            return None
        return f"its run folder was removed, and with it {update} updates; clone the job to start anew"

    # while it lives ----------------------------------------------------------------------------------------------

    def _watch(self, process: launch.RunProcess) -> None:
        escalation = self.escalation
        assert escalation is not None
        while not process.ended():
            now = time.monotonic()
            self.tail.seconds += (now - self._ticked) * len(self.claim.devices)
            self._ticked = now
            try:
                self._exchange(process, escalation, now)
            except StoreUnavailable as error:
                log.warning("job %s goes on while %s", self.claim.job_id, error)
            self._look_at_run(escalation, now)
            if self.setting.stopping.is_set() and escalation.begin("shutdown", now):
                launch.note_shutdown(self.output)
            escalation.step(now)
            launch.trim_output(self.output)
            if self.setting.stopping.wait(self.patience.look):
                time.sleep(min(0.1, self.patience.look))

    def _exchange(self, process: launch.RunProcess, escalation: Escalation, now: float) -> None:
        """News into the store, wishes out of it."""
        self._note_start(process)
        while self.tail.take():
            pass
        view = self._view()
        if view.state == "cancelling":
            self._end_for(escalation, "cancel", now)
        elif view.state == "pausing":
            self._end_for(escalation, "pause", now)
        elif view.budget is not None and view.device_seconds + self.tail.seconds > view.budget * 60:
            self._budget_spent(view.budget)

    def _note_start(self, process: launch.RunProcess) -> None:
        if not self._noted:
            attempts.started(self.store, self.claim, process.pid, process.born)
            self._noted = True

    def _end_for(self, escalation: Escalation, reason: Reason, now: float) -> None:
        if escalation.reason in (None, "pause") and escalation.begin(reason, now):
            log.info("job %s: asked to %s", self.claim.job_id, reason)

    def _budget_spent(self, budget: float) -> None:
        message = f"its budget of {budget:g} device-minutes is spent; raise it, then resume"
        try:
            with self.store.writing() as session:
                move(session, self.claim.job_id, "pausing", message, origins=("running",), fence=self.claim.fence)
        except IllegalTransition:
            return  # somebody asked for something else a moment ago
        log.info("job %s: %s", self.claim.job_id, message)

    def _look_at_run(self, escalation: Escalation, now: float) -> None:
        """Signs of life, and whether the folder is still there."""
        if self.tail.grown:
            self._longest_silence = max(self._longest_silence, now - self._sign)
            self._sign = now
        limit = max(self.patience.hang, self.patience.hang_factor * self._longest_silence)
        if now - self._sign > limit and escalation.reason is None:
            log.warning("job %s hangs and is killed", self.claim.job_id)
            escalation.begin("hung", now)
        there = self._there()
        if self._was_there and not there and escalation.begin("removed", now):
            log.warning("job %s: its folder was removed", self.claim.job_id)
        self._was_there = self._was_there or there

    def _there(self) -> bool:
        """Whether the folder holds what it does from the start on; a run may make a removed one again by writing."""
        return (self.folder / ("config.yaml" if self.claim.kind == "alignment" else "events.jsonl")).is_file()

    # the end -----------------------------------------------------------------------------------------------------

    def _family(self) -> list[Found]:
        leader = (self.process.pid, self.process.born) if self.process else (None, None)
        return family(self.ground.studio, self.claim.job_id, *leader)

    def _kill(self) -> None:
        if left := kill_all(self._family):
            log.error("job %s: process %d does not die", self.claim.job_id, left[0].pid)

    def _conclude(self, problem: str | None) -> None:
        """All of its processes are gone, or made to go; then the last words, and the decision."""
        while left := kill_all(self._family):
            # Its device is not free as long as a process holds it, in the middle of a driver call.
            log.error("job %s: waiting for process %d to die", self.claim.job_id, left[0].pid)
        if self.process is not None:
            process = self.process
            self._patiently(lambda: self._note_start(process))
        self._patiently(self.tail.drain)
        for _ in range(_TRIES):
            try:
                self._patiently(lambda: self._apply(self._verdict(problem)))
                return
            except IllegalTransition as error:  # somebody asked for something else a moment ago: look again
                log.info("job %s: %s", self.claim.job_id, error)
        log.error("job %s cannot be concluded", self.claim.job_id)

    def _verdict(self, problem: str | None) -> Verdict:
        view = self._view()
        if problem is not None:
            return Verdict("cancelled" if view.state == "cancelling" else "failed", problem)
        process = self.process
        remains = Remains(
            process.exit_code if process else None, launch.last_output(self.output), kernel_kills() > self._kills
        )
        case = Case(
            state=view.state,
            message=view.message,
            kind=self.claim.kind,
            update=view.update,
            ending=last_ending(self.tail.file, self.launched.events_from if self.launched else 0),
            done=launch.is_done(self.ground, self.claim),
            remains=remains,
            reason=self._reason(),
            started=bool(process or self.claim.process or self.launched),
            silent_minutes=(time.monotonic() - self._sign) / 60,
        )
        return decide(case)

    def _reason(self) -> Reason | None:
        """Why a worker ended the run, if it did: this one, or one before that died on its way out."""
        if self.escalation is not None and self.escalation.reason is not None:
            return self.escalation.reason
        if self._was_there and not self._there():
            return "removed"
        return "shutdown" if (self.output / launch.SHUTDOWN_FILE).exists() else None

    def give_up(self, error: Exception) -> None:
        """Something unforeseen happened here: end the run, and let the job's retries count it."""
        self._kill()
        why = f"its worker failed at it ({type(error).__name__}: {error})"
        with suppress(Fenced, IllegalTransition):
            self._patiently(lambda: attempts.died(self.store, self.claim, why[:_LONGEST_MESSAGE]))

    def _apply(self, verdict: Verdict) -> None:
        claim, code = self.claim, self.process.exit_code if self.process else None
        message = inside_out(self.ground.workspace.folder, verdict.message)[:_LONGEST_MESSAGE]
        if verdict.target == "died":
            state = attempts.died(self.store, claim, message, code)
        else:
            result = outputs.enter(self.store, self.ground, claim, verdict.target == "succeeded")
            attempts.ended(self.store, claim, verdict.target, message, code, result)
            state = verdict.target
        log.info("job %s: %s%s", claim.job_id, state, f" ({message})" if message else "")

    def _let_go(self) -> None:
        """The job is in other hands. Where they are on this machine they take the living process over; else it ends."""
        if self.process is None:
            return
        if self._patiently(self._in_hands_here):
            log.info("job %s: left process %d to its new supervisor", self.claim.job_id, self.process.pid)
            return
        end_politely(self._family, self.patience.shutdown_ask)
        log.info("job %s: ended process %d", self.claim.job_id, self.process.pid)
        self.process.ended()  # reaps it

    def _in_hands_here(self) -> bool:
        with self.store.reading() as session:
            job = session.get(Job, self.claim.job_id)
            query = select(Attempt.host).where(Attempt.job_id == self.claim.job_id).order_by(Attempt.number.desc())
            return job is not None and job.state in ACTIVE and session.scalar(query.limit(1)) == self.ground.host

    # the store ---------------------------------------------------------------------------------------------------

    def _view(self) -> View:
        """The job now; Fenced if it is in other hands, or gone."""
        claim = self.claim
        with self.store.reading() as session:
            job = session.get(Job, claim.job_id)
            if job is None or job.fence != claim.fence:
                raise Fenced(f"the job {claim.job_id} {'is in other hands by now' if job else 'was deleted'}")
            return View(cast("State", job.state), job.message, job.update, job.budget, job.device_seconds)

    def _patiently(self, work: Callable[[], Result]) -> Result:
        """Do it when the database is there, however long that takes, unless this worker has to go."""
        waited_since = time.monotonic()
        while True:
            try:
                return work()
            except StoreUnavailable as error:
                stopping = self.setting.stopping.is_set()
                if stopping and time.monotonic() - waited_since > self.patience.store:
                    raise
                log.warning("job %s waits: %s", self.claim.job_id, error)
                time.sleep(1.0)
