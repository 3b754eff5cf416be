"""The checks inside a run: they refuse and warn in time, and a run with them equals one without, bit for bit."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_grpo import replay
from flash_grpo.attempt import open_run
from flash_grpo.checkpoint import load_weights, read_pointer
from flash_grpo.errors import InputError
from flash_grpo.events import Record, read_events
from flash_grpo.planning.disk import disk_of_run
from flash_grpo.safeguards import Safeguards
from flash_grpo.trainer import Trainer, train
from tests.tiny import config_for

BRIGHT = "tests.tiny:brightness"
QUICK: dict[str, Any] = {
    "rewards": {BRIGHT: 1.0, "colorfulness": 0.0}, "prompts_per_update": 3, "group_size": 4, "sampling_steps": 4,
    "candidate_steps": [0, 1], "guidance_scale": 2.0, "evaluation_steps": 3, "updates": 2, "evaluate_every": 0,
    "validation_limit": 3, "heldout_limit": 3, "videos_saved": 1,
}  # fmt: skip


def run(folder: Path, output: Path, **changes: Any) -> dict[str, Any]:
    return train(config_for(folder, **{**QUICK, **changes}), output)


def of_type(output: Path, kind: str) -> list[Record]:
    return [record for record in read_events(output) if record.type == kind]


def figures(output: Path) -> list[dict[str, Any]]:
    """All that a run measured, without times and memory."""
    dropped = ("seconds", "peak_memory_mb", "elapsed_seconds", "eta_seconds", "eta_low_seconds", "eta_high_seconds")
    kinds = ("metrics", "evaluation", "progress")
    return [{k: v for k, v in r.data.items() if k not in dropped} for r in read_events(output) if r.type in kinds]


def adapter(output: Path) -> torch.Tensor:
    """The latest checkpoint's weights as one vector."""
    latest = read_pointer(output, "latest")
    assert latest is not None
    weights = load_weights(latest)
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def test_a_run_with_checks_equals_one_without(tiny_folder: Path, tmp_path: Path) -> None:
    variants: dict[str, dict[str, Any]] = {
        "with": {"ignore_checks": []},
        "without": {"checks": False},
        "other": {"seed": 1},
    }
    for name, changes in variants.items():
        run(tiny_folder, tmp_path / name, **changes)
    assert figures(tmp_path / "with") == figures(tmp_path / "without")
    assert torch.equal(adapter(tmp_path / "with"), adapter(tmp_path / "without"))
    files = [file.stat().st_size for file in (tmp_path / "with").rglob("*") if file.is_file()]
    foreseen = disk_of_run(config_for(tiny_folder, **QUICK), adapter(tmp_path / "with").numel(), 3, 3).most
    assert sum(files) < foreseen < 10 * sum(files)
    # Negative controls: another seed is another run, and the checks were made.
    assert figures(tmp_path / "with") != figures(tmp_path / "other")
    assert not torch.equal(adapter(tmp_path / "with"), adapter(tmp_path / "other"))
    assert [r.data["code"] for r in of_type(tmp_path / "with", "warning")][:1] == ["rollouts"]
    assert "rollouts" not in [r.data["code"] for r in of_type(tmp_path / "without", "warning")]


def test_a_refusal_ends_the_run_before_the_first_step(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pytest.raises(InputError, match="in 3 of 3 groups all rewards are the same"):
        run(tiny_folder, output, rewards={"tests.tiny:constant": 1.0})
    assert of_type(output, "metrics") == [] == of_type(output, "checkpoint")
    assert "dead_groups" in of_type(output, "failed")[0].data["message"]
    # Overridden, it is told and the run goes on.
    run(tiny_folder, tmp_path / "on", rewards={"tests.tiny:constant": 1.0}, ignore_checks=["dead_groups"])
    assert "dead_groups" in [record.data["code"] for record in of_type(tmp_path / "on", "warning")]
    assert len(of_type(tmp_path / "on", "metrics")) == 2


def test_a_full_disk_is_refused_before_anything_is_generated(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flash_grpo.doctor.free_bytes", lambda folder: 1000)
    with pytest.raises(InputError, match="where 0.0 MiB are free; free some, choose another --output"):
        run(tiny_folder, tmp_path / "run")
    assert of_type(tmp_path / "run", "evaluation") == []


def test_a_replay_that_differs_is_refused(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = replay._state
    monkeypatch.setattr(replay, "_state", lambda unit: sound(unit) * 1.05)
    with pytest.raises(InputError, match=r"rollout and replay differ .* ignore_checks=\[drift\]"):
        run(tiny_folder, tmp_path / "run")


def test_the_second_update_is_not_checked_again(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    sound = Safeguards.update_findings

    def counted(self: Safeguards, *given: Any) -> Any:
        made.append(self.run.course.update)
        return sound(self, *given)

    monkeypatch.setattr(Safeguards, "update_findings", counted)
    run(tiny_folder, tmp_path / "run", inner_updates=2)
    assert made == [0]


def test_processes_that_part_are_refused_and_a_decline_is_told(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(tiny_folder, **QUICK, decline_patience=2)
    with open_run(config, tmp_path / "run", None) as opened, closing(Trainer(opened)) as trainer:
        safeguards = Safeguards(opened, trainer.named)
        safeguards.same_weights()
        monkeypatch.setattr(opened.runtime, "same_everywhere", lambda tensors: list(tensors) == [])
        with pytest.raises(InputError, match="the processes hold different weights after update 0"):
            safeguards.same_weights()
        for update, (gain, stops) in enumerate([(0.5, False), (0.4, False), (0.6, False), (0.5, False), (0.4, True)]):
            opened.course.update = update
            opened.course.validations.append((update, gain))
            assert (safeguards.declined() is not None) is stops
        assert safeguards.declined() == (
            "stopped at update 4: the validation reward declined 2 times in a row; the best is update 2"
        )
        opened.course.validations[:] = [(1, -0.1), (2, -0.2)]
        assert "declined 2 times in a row; none was better than the base" in str(safeguards.declined())


def test_a_declining_run_stops(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    changes = {"rewards": {"tests.tiny:Waning": 1.0}, "evaluate_every": 1, "updates": 50, "decline_patience": 3}
    run(tiny_folder, output, **changes, ignore_checks=["rollouts"])
    assert [record.update for record in of_type(output, "metrics")] == [1, 2, 3, 4]
    warning = of_type(output, "warning")[0].data
    assert warning["code"] == "early_stop"
    assert "the validation reward declined 3 times in a row; the best is update 1" in warning["message"]
