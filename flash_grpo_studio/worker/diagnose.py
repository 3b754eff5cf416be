"""Why a run ended, as one sentence for a person, from its exit code and its last words. Knows no files or processes."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from flash_grpo.commands.base import BAD_INPUT, DONE
from flash_grpo_studio.app.redaction import redact

LAST_LINES = 12
_LINE_LENGTH = 400


@dataclass(frozen=True)
class Remains:
    """What is left of an attempt whose processes are gone.

    exit_code: negative for a signal, None where nobody could learn it. output: the end of what it printed.
    kernel_killed: whether the machine ran out of memory meanwhile and its kernel ended processes.
    """

    exit_code: int | None
    output: str = ""
    kernel_killed: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """why: one sentence without its full stop. again: whether another start may do better. lines: the last words."""

    why: str
    again: bool
    lines: tuple[str, ...] = ()

    def full(self) -> str:
        """The sentence with the last lines below it."""
        return "\n".join([self.why, *self.lines])


# What the text says, what to tell, and whether trying again may help. The first that matches counts.
_CAUSES: tuple[tuple[str, str, bool], ...] = (
    (
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|HIP out of memory",
        "the device ran out of memory; lower rollout_batch, replay_batch or decode_batch, or turn on "
        "gradient_checkpointing",
        False,
    ),
    (
        r"\bMemoryError\b|DefaultCPUAllocator: (can't|not enough)|Cannot allocate memory|std::bad_alloc",
        "the machine ran out of memory; lower rollout_batch, decode_batch or group_size, or let fewer jobs run at once",
        False,
    ),
    (
        r"No space left on device|Disk quota exceeded|ENOSPC",
        "the disk is full; free some space in the workspace, then press Retry",
        False,
    ),
    (
        r"not finite|\bNaN\b|weights have diverged",
        "the training diverged (numbers were not finite); lower learning_rate",
        False,
    ),
    (
        r"CUDA error: (uncorrectable|device-side|an illegal)|Xid|NCCL.*(unhandled|error)|cudaErrorECC",
        "the device or its driver failed",
        True,
    ),
)
_TORCHRUN_SIGNAL = re.compile(r"exitcode\s*:\s*-(\d+)|Signal (\d+) \(SIG")
_LOST_PEER = re.compile(r"lost contact with another one")


def diagnose(remains: Remains, said: str | None = None) -> Diagnosis:
    """Why an attempt ended that did not end as asked.

    said: the sentence of its `failed` event, if it could still write one.
    """
    lines = last_lines(remains.output)
    if said is not None:
        return Diagnosis(redact(said).rstrip("."), bool(_LOST_PEER.search(said)), lines)
    code = remains.exit_code
    if code == BAD_INPUT:
        return Diagnosis(_complaint(lines) or "the command line was not accepted", False, lines)
    number = _signal(remains)
    if number is not None:
        return Diagnosis(_by_signal(number, remains), True, lines)
    for pattern, sentence, again in _CAUSES:
        if re.search(pattern, remains.output):
            return Diagnosis(sentence, again, lines)
    if code is None:
        return Diagnosis("its process ended without a word while no worker watched it", True, lines)
    if code == DONE:
        return Diagnosis("its process ended as if done, but left no result", True, lines)
    return Diagnosis(_complaint(lines) or f"its process ended with exit code {code}", False, lines)


def _signal(remains: Remains) -> int | None:
    """The signal that ended it, also one that a launcher only reports of its child."""
    if remains.exit_code is not None and remains.exit_code < 0:
        return -remains.exit_code
    if remains.exit_code not in (None, DONE) and (match := _TORCHRUN_SIGNAL.search(remains.output)):
        return int(match[1] or match[2])
    return None


def _by_signal(number: int, remains: Remains) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and remains.kernel_killed:
        return "the machine ran out of memory, and its kernel killed the process (SIGKILL)"
    if number == signal.SIGKILL:
        return "its process was killed from outside (SIGKILL), by a person or by a kernel out of memory"
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        return f"its process crashed ({name})"
    return f"its process was ended from outside ({name})"


def _complaint(lines: tuple[str, ...]) -> str:
    """The sentence by which flash-grpo says what was wrong: the last line that begins with its name, else the last."""
    for line in reversed(lines):
        if line.startswith("flash-grpo: "):
            return line.removeprefix("flash-grpo: ").removeprefix("the run failed: ").rstrip(".")
    return lines[-1].strip(" │╰╯─") if lines else ""


def last_lines(output: str, count: int = LAST_LINES) -> tuple[str, ...]:
    """The last lines that say something, secrets taken out. Of a progress line written over itself the last state."""
    found = (line.rsplit("\r", 1)[-1].rstrip() for line in output.splitlines())
    kept = [redact(line)[:_LINE_LENGTH] for line in found if line.strip(" │╭╮╰╯─")]
    return tuple(kept[-count:])
