"""The command `doctor`: a sound machine passes, every broken part is named, and a run is tried without being kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flash_grpo import checkup, cli
from flash_grpo.checkup import GIB, examine_machine, examine_run, free_memory
from flash_grpo.control import Interrupted
from flash_grpo.doctor import Finding
from tests.tiny import config_for

BRIGHT = "tests.tiny:brightness"
MACHINE = {"python", "packages", "devices", "memory", "workspace", "video", "threads"}
RUN = {"rollouts", "disk", "self_tests", "drift", "determinism", "groups", "rewards", "dead_groups", "gradients"}
QUICK: dict[str, Any] = {
    "rewards": {BRIGHT: 1.0}, "prompts_per_update": 3, "group_size": 4, "sampling_steps": 4,
    "candidate_steps": [0, 1], "guidance_scale": 2.0, "validation_limit": 2, "heldout_limit": 2, "updates": 1,
}  # fmt: skip


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings}


def test_a_sound_machine_passes(tmp_path: Path) -> None:
    findings = by_code(examine_machine(tmp_path))
    assert set(findings) == MACHINE
    refused = [finding for finding in findings.values() if finding.level == "refusal"]
    assert refused == []
    assert f"torch {torch.__version__}" in findings["packages"].sentence
    assert "H.264 is written and read back" in findings["video"].sentence
    assert list(tmp_path.iterdir()) == []


def requires(*packages: str) -> Callable[[str], list[str]]:
    return lambda name: [*packages, "not-there-at-all>=1; extra == 'studio'"]


@pytest.mark.parametrize(
    ("place", "broken", "code", "level", "sentence"),
    [
        ("metadata.requires", requires("torch>=2", "numpy>=999"), "packages", "refusal", "expected numpy>=999 (found:"),
        ("metadata.requires", requires("no-such-one>=1"), "packages", "refusal", "no-such-one>=1 (found: missing)"),
        ("metadata.metadata", lambda name: {"Requires-Python": ">=9"}, "python", "refusal", "install a newer Python"),
        ("free_memory", lambda: GIB, "memory", "warning", "1.0 GiB of memory are free; expected 2 GiB"),
        ("free_bytes", lambda folder: GIB / 4, "workspace", "warning", "0.2 GiB free; expected 1 GiB"),
        ("read_mp4", lambda path: np.zeros((5, 64, 64, 3)), "video", "refusal", "came back different (mean error 50.0"),
        ("read_mp4", lambda path: np.zeros((4, 64, 64, 3)), "video", "refusal", "came back different (mean error inf"),
        ("torch.get_num_threads", lambda: 10**6, "threads", "warning", "expected no more threads than cores"),
    ],
)
def test_a_broken_part_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, broken: object, code: str, level: str, sentence: str
) -> None:
    monkeypatch.setattr(f"flash_grpo.checkup.{place}", broken)
    finding = by_code(examine_machine(tmp_path))[code]
    assert finding.level == level and sentence in finding.sentence


def test_a_workspace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    finding = by_code(examine_machine(tmp_path / "missing"))["workspace"]
    assert finding.level == "refusal" and "cannot be written (No such file or directory)" in finding.sentence


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lost(*given: object) -> None:
        raise RuntimeError("no encoder")

    monkeypatch.setattr(checkup, "write_mp4", lost)
    findings = by_code(examine_machine(tmp_path))
    assert set(findings) == MACHINE
    assert findings["video"].level == "refusal" and "RuntimeError: no encoder" in findings["video"].sentence


def test_free_memory_is_the_containers_if_that_is_less(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n", encoding="ascii")
    assert free_memory(tmp_path) == 8000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("100000\n", encoding="ascii")
    for limit, free in (("max", 8000 * 1024), ("1100000", 1_000_000), ("50000", 0), (str(10**12), 8000 * 1024)):
        (group / "memory.max").write_text(f"{limit}\n", encoding="ascii")
        assert free_memory(tmp_path) == free


def test_a_run_is_tried_and_nothing_of_it_is_kept(tiny_folder: Path, tmp_path: Path) -> None:
    findings = by_code(examine_run(config_for(tiny_folder, **QUICK, ignore_checks=[]), tmp_path))
    assert set(findings) == RUN
    assert {code: f.level for code, f in findings.items() if f.level != "ok"} == {"rollouts": "warning"}
    assert list(tmp_path.iterdir()) == []
    ignored = examine_run(config_for(tiny_folder, **QUICK, ignore_checks=["rollouts"]), tmp_path)
    assert {finding.level for finding in ignored} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "code", "level", "sentence"),
    [
        ({"rewards": {"tests.tiny:broken": 1.0}}, "first_update", "refusal", "values are not finite"),
        ({"rewards": {"tests.tiny:crash": 1.0}}, "first_update", "refusal", "the judge of 4 videos has left"),
        ({"rewards": {"tests.tiny:constant": 1.0}}, "dead_groups", "refusal", "in 3 of 3 groups all rewards are the"),
        ({"rewards": {"tests.tiny:constant": 1.0}, "ignore_checks": ["dead_groups"]}, "dead_groups", "warning", "in 3"),
        ({"clip": 1e-12}, "drift", "refusal", "clip is 1.0e-12; expected 3 x drift or more"),
        ({"lora_targets": ["no_such"]}, "first_update", "refusal", "name no linear layer of this model"),
    ],
)
def test_a_run_that_cannot_work_is_found(
    tiny_folder: Path, tmp_path: Path, changes: dict[str, Any], code: str, level: str, sentence: str
) -> None:
    finding = by_code(examine_run(config_for(tiny_folder, **{**QUICK, **changes}), tmp_path))[code]
    assert finding.level == level and sentence in finding.sentence


def doctor(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", "doctor", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def test_the_command_tells_a_person_and_a_program(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor(monkeypatch) == 0
    assert "H.264 is written and read back" in capsys.readouterr().out
    values = {**config_for(tiny_folder, **QUICK).model_dump(), "rewards": {"subject_size": 1.0}, "clip": 1e-12}
    options = [f"--set={key}={json.dumps(value)}" for key, value in values.items()]
    assert doctor(monkeypatch, "--preset", "micro", "--json", *options) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["code"] for finding in findings} == MACHINE | RUN
    assert {f["code"] for f in findings if f["level"] == "refusal"} >= {"drift"}
    assert all(set(finding) == {"code", "level", "sentence", "measured"} for finding in findings)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_bad_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(monkeypatch, "--set", "updates=2") == 2
    assert capsys.readouterr().err.endswith("no run was named; add --preset NAME\n")
    assert doctor(monkeypatch, "--preset", "micro", "--set", "ignore_checks=[drifft]") == 2
    assert "ignore_checks" in capsys.readouterr().err


def test_a_figure_that_is_none_stays_readable() -> None:
    assert json.loads(json.dumps(Finding("a", "ok", "b", {"c": float("inf"), "d": 1.0}).plain(), allow_nan=False)) == {
        "code": "a", "level": "ok", "sentence": "b", "measured": {"c": None, "d": 1.0},
    }  # fmt: skip


def test_an_interrupted_try_ends_as_any_command(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: object) -> None:
        raise Interrupted("interrupted")

    monkeypatch.setattr(checkup.Trainer, "collect", stopped)
    with pytest.raises(KeyboardInterrupt):
        examine_run(config_for(tiny_folder, **QUICK), tmp_path)
