"""A process that behaves like a run without computing anything, as its one argument, JSON, says.

    python -m tests.worker.scripted '{"updates": 5, "seconds": 0.1}'

It works in the job's folder as a training does: run/config.yaml, run/events.jsonl, run/control, and run/saved as its
checkpoint. Keys: updates; seconds (per update); save_every; folder (run or report); silent_at (update from which on it
says nothing); slow_at, slow (seconds of silence there); ignore_term; die_at and signal; exit_at and exit_code; say
(printed at the end, or at exit); fail (a sentence); children (grandchildren to leave, each `session` or `bare`); once
(all faults only in attempt 1); deaf (ignores its control folder); slow_stop (seconds from SIGTERM to its end).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from flash_grpo.events import Checkpoint, EventLog, Failed, Finished, Progress, Resumed, RunStarted, read_events

ENDLESS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Scripted:
    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.folder = Path(script.get("folder", "run"))
        self.saved = self.folder / "saved"
        self.stopped = 0

    def signalled(self, number: int, frame: FrameType | None) -> None:
        self.stopped += 1
        with (self.folder / "signals").open("a") as file:
            file.write(f"{number}\n")
        if not self.script.get("ignore_term"):
            signal.signal(number, signal.SIG_DFL)  # as a run does: a second one ends it at once

    def run(self) -> int:
        (self.folder / "control").mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self.signalled)
        attempt = 1 + max((record.attempt for record in read_events(self.folder, fold=False)), default=0)
        if self.script.get("once") and attempt > 1:
            self.script = {key: self.script[key] for key in ("updates", "seconds", "save_every") if key in self.script}
        for request in (self.folder / "control").iterdir():
            request.unlink()
        (self.folder / "config.yaml").write_text("{}")
        self._leave_children()
        with EventLog(self.folder, attempt) as log:
            log.emit(RunStarted({}, {}))
            update = int(self.saved.read_text()) if self.saved.exists() else 0
            if attempt > 1:
                log.emit(Resumed(update))
            return self._work(log, update)

    def _work(self, log: EventLog, update: int) -> int:
        script = self.script
        while update < script.get("updates", 3):
            if (end := self._asked(log, update)) is not None:
                return end
            time.sleep(script.get("seconds", 0.05))
            update += 1
            if update == script.get("exit_at"):
                print(script.get("say", ""), flush=True)
                if script.get("fail"):
                    log.emit(Failed(script["fail"]))
                return int(script.get("exit_code", 1))
            if update == script.get("die_at"):
                print(script.get("say", ""), flush=True)
                os.kill(os.getpid(), script.get("signal", signal.SIGKILL))
            if update == script.get("slow_at"):
                time.sleep(script["slow"])
            while update == script.get("silent_at"):
                time.sleep(0.05)
            self._tell(log, update)
        (self.folder / "summary.json").write_text(json.dumps({"status": "done", "updates": update}))
        log.emit(Finished("done", f"Trained {update} updates."))
        return 0

    def _tell(self, log: EventLog, update: int) -> None:
        updates = self.script.get("updates", 3)
        log.emit(Progress("rollout", update, updates, update * 1.0))
        emit_metrics(log, update)
        if update % self.script.get("save_every", 1) == 0:
            (self.folder / "checkpoints" / f"{update:06d}").mkdir(parents=True, exist_ok=True)
            self.saved.write_text(str(update))
            log.emit(Checkpoint(update, f"checkpoints/{update:06d}"))

    def _asked(self, log: EventLog, update: int) -> int | None:
        control = self.folder / "control"
        for request, status, code in (("pause", "paused", 75), ("stop", "interrupted", 130)):
            if (control / request).exists() and not self.script.get("deaf"):
                (control / request).unlink()
                return self._end(log, update, status, code)
        if self.stopped and not self.script.get("ignore_term"):
            time.sleep(self.script.get("slow_stop", 0.0))
            return self._end(log, update, "interrupted", 130)
        return None

    def _end(self, log: EventLog, update: int, status: str, code: int) -> int:
        self.saved.write_text(str(update))
        log.emit(Finished(status, f"The run was {status}."))
        return code

    def _leave_children(self) -> None:
        for kind in self.script.get("children", ()):
            environment = {} if kind == "bare" else None
            subprocess.Popen([sys.executable, "-c", ENDLESS], env=environment, start_new_session=kind == "session")


def emit_metrics(log: EventLog, update: int) -> None:
    from flash_grpo.events import Metrics

    rewards = {"brightness": {"mean": update / 10, "std": 0.1, "min": 0.0, "max": 1.0, "group_spread": 0.1}}
    log.emit(
        Metrics(
            update, rewards, {"mean": 0.0}, 1.0, {0: {"weight": 1.0}}, 0.0, 0.0, None, 0, 2, 1e-4, {"rollout": 0.1},
            {"rollout": 4.0}, 4 * update, 10.0, 0.5,
        )
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(Scripted(json.loads(sys.argv[1])).run())
