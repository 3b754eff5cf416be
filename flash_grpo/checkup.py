"""The command `doctor`: the machine and the installation, and a run's first update without its optimiser step."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.table import Table
from rich.text import Text

from flash_grpo.attempt import open_run
from flash_grpo.config import RunConfig
from flash_grpo.control import Interrupted
from flash_grpo.doctor import GIB, Finding, free_bytes, lowered
from flash_grpo.errors import InputError
from flash_grpo.metrics import PhaseClock
from flash_grpo.safeguards import Safeguards
from flash_grpo.trainer import Trainer
from flash_grpo.video import read_mp4, write_mp4

PACKAGE = "flash-grpo-studio"
LOW_MEMORY, LOW_DISK = 2 * GIB, GIB


def check_up(config: RunConfig | None, workspace: Path) -> list[Finding]:
    """Findings on this machine, and on the run of a configuration if one is given."""
    return examine_machine(workspace) + (examine_run(config, workspace) if config else [])


def findings_table(findings: Sequence[Finding]) -> Table:
    """The findings as a table for the terminal."""
    table = Table("check", "level", "finding")
    for finding in findings:
        colour = {"ok": "green", "warning": "yellow", "refusal": "red"}[finding.level]
        table.add_row(finding.code, Text(finding.level, colour), Text(finding.sentence))
    return table


def examine_machine(workspace: Path) -> list[Finding]:
    """Python, packages, devices, memory, disk, video encoding, threads and the workspace; seconds at most."""
    checks: tuple[Callable[[Path], Iterator[Finding]], ...] = (
        _python, _packages, _devices, _memory, _workspace, _video, _threads
    )  # fmt: skip
    findings: list[Finding] = []
    for check in checks:
        try:
            findings.extend(check(workspace))
        except Exception as error:  # a check that breaks is itself a finding
            findings.append(Finding(check.__name__.strip("_"), "refusal", f"this check itself failed: {_told(error)}"))
    return findings


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _python(workspace: Path) -> Iterator[Finding]:
    del workspace
    have, wanted = platform.python_version(), metadata.metadata(PACKAGE)["Requires-Python"] or ""
    good = SpecifierSet(wanted).contains(have, prereleases=True)
    said = f"Python {have}; expected {wanted}" + ("" if good else "; install a newer Python")
    yield Finding("python", "ok" if good else "refusal", said)


def _packages(workspace: Path) -> Iterator[Finding]:
    del workspace
    wrong, versions = [], []
    for requirement in map(Requirement, metadata.requires(PACKAGE) or ()):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            have = "missing"
        versions.append(f"{requirement.name} {have}")
        if have == "missing" or not requirement.specifier.contains(have, prereleases=True):
            wrong.append(f"{requirement} (found: {have})")
    if wrong:
        advice = f"run pip install --upgrade {PACKAGE}"
        yield Finding("packages", "refusal", f"expected {', '.join(wrong)}; {advice}")
    else:
        yield Finding("packages", "ok", ", ".join(versions))


def _devices(workspace: Path) -> Iterator[Finding]:
    del workspace
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    numbers = torch.linspace(-1, 1, 64 * 64, dtype=torch.float64).view(64, 64)
    for name in names:
        product = (numbers.float().to(name) @ numbers.float().to(name)).cpu()
        error = float((product - numbers @ numbers).abs().max())
        good = error < 0.1  # TF32 is allowed to round to three digits
        said, figures = f"{name}: {os.cpu_count()} cores", {"error": error}
        if name != "cpu":
            free, total = torch.cuda.mem_get_info(name)
            said = f"{name}: {torch.cuda.get_device_name(name)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
            figures |= {"free_bytes": float(free), "total_bytes": float(total)}
        if not good:
            said += f"; a small product is wrong by {error:.1e}, expected rounding; mend driver or torch"
        yield Finding("devices", "ok" if good else "refusal", said, figures)


def _memory(workspace: Path) -> Iterator[Finding]:
    del workspace
    free = free_memory()
    if free is None:
        yield Finding("memory", "ok", "free memory cannot be measured on this system")
        return
    said, figures = f"{free / GIB:.1f} GiB of memory are free", {"free_bytes": float(free)}
    if free < LOW_MEMORY:
        advice = f"expected {LOW_MEMORY / GIB:.0f} GiB for the pocket model; close other programs"
        yield Finding("memory", "warning", f"{said}; {advice}", figures)
    else:
        yield Finding("memory", "ok", said, figures)


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still use: of the machine, and of its container if that is less; None if unknown."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    try:
        limit, used = ((root / "sys/fs/cgroup" / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    if free is None or limit == "max":
        return free
    return min(free, max(0, int(limit) - int(used)))


def _workspace(workspace: Path) -> Iterator[Finding]:
    free = free_bytes(workspace)
    said, figures = f"{workspace}: {free / GIB:.1f} GiB free", {"free_bytes": float(free)}
    try:
        with tempfile.TemporaryFile(dir=workspace) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        advice = "change its rights, or start from another folder"
        yield Finding("workspace", "refusal", f"{workspace} cannot be written ({error.strerror}); {advice}", figures)
        return
    if free < LOW_DISK:
        yield Finding("workspace", "warning", f"{said}; expected {LOW_DISK / GIB:.0f} GiB; free some", figures)
    else:
        yield Finding("workspace", "ok", f"{said}, writable", figures)


def _video(workspace: Path) -> Iterator[Finding]:
    del workspace
    frames = np.zeros((5, 64, 64, 3), np.uint8)
    frames[:, 16:48, 16:48] = 200
    with tempfile.TemporaryDirectory(prefix="flash-grpo-") as folder:
        path = Path(folder) / "clip.mp4"
        write_mp4(path, frames, 8.0)
        back = read_mp4(path)
    error = float(np.abs(back.astype(float) - frames).mean()) if back.shape == frames.shape else float("inf")
    if error > 8:
        advice = "reinstall av, whose wheels carry H.264"
        said = f"a video came back different (mean error {error:.1f} of 255); expected at most 8; {advice}"
        yield Finding("video", "refusal", said, {"error": error})
    else:
        yield Finding(
            "video", "ok", f"H.264 is written and read back (mean error {error:.1f} of 255)", {"error": error}
        )


def _threads(workspace: Path) -> Iterator[Finding]:
    del workspace
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    said = f"torch uses {threads} threads on {usable} usable cores"
    figures = {"threads": float(threads), "cores": float(usable)}
    if threads > usable:
        advice = f"expected no more threads than cores; set OMP_NUM_THREADS={usable} or --set threads={usable}"
        yield Finding("threads", "warning", f"{said}; {advice}", figures)
    else:
        yield Finding("threads", "ok", said, figures)


def examine_run(config: RunConfig, workspace: Path) -> list[Finding]:
    """Set a run up and make its first update, but for the optimiser step; nothing of it is kept.

    What stops the run on the way is a finding too. Raises KeyboardInterrupt after a signal.
    """
    findings: list[Finding] = []
    quiet = config.model_copy(update={"trackers": []})  # a tracker would announce a run that is none
    with tempfile.TemporaryDirectory(prefix="flash-grpo-") as folder:
        try:
            with open_run(quiet, Path(folder) / "run", None, ()) as run, closing(Trainer(run)) as trainer:
                for finding in _examine(trainer, workspace):
                    findings.append(finding)
        except Interrupted:
            raise KeyboardInterrupt from None  # a signal ends this command as any other
        except InputError as error:
            findings.append(Finding("first_update", "refusal", str(error)))
        except Exception as error:
            said = f"the first update failed ({_told(error)}); expected it to come to its end"
            findings.append(Finding("first_update", "refusal", f"{said}; `train` writes the details to its log.txt"))
    return lowered(findings, config.ignore_checks)


def _examine(trainer: Trainer, workspace: Path) -> Iterator[Finding]:
    safeguards = Safeguards(trainer.run, trainer.named)
    yield from safeguards.setup_findings(workspace)
    batch = trainer.collect(PhaseClock(trainer.run.meter))
    report = trainer.accumulate(batch)
    yield from safeguards.update_findings(batch.plans, batch.rewards, batch.advantages, report)
