"""The doctor: every check sees the thing that is really broken, leaves the healthy alone, and touches nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from flash_grpo.advantage import group_advantages
from flash_grpo.config import RunConfig, build_config
from flash_grpo.doctor import (
    Finding,
    FirstUpdate,
    adapter_problem,
    check_first_update,
    check_setup,
    heed,
    ranks_agree,
    reward_declining,
    update_size,
)
from flash_grpo.errors import InputError
from flash_grpo.models.base import TextEmbeddings
from flash_grpo.models.wan import WanModel
from flash_grpo.planning.disk import disk_of_run
from flash_grpo.replay import ReplaySettings, replay
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import GroupPlan, Meter, Sampler, build_sampler, roll_out
from tests.tiny import brightness, config_for, constant, embed, open_model

Reward = Callable[[VideoBatch], torch.Tensor]
Velocity = Callable[..., torch.Tensor]


def alone(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(values)


class Patient:
    """A tiny run's parts up to its first backward."""

    def __init__(self, folder: Path, adapter: float = 0.0, **changes: Any) -> None:
        values = {"prompts_per_update": 3, "group_size": 4, "sampling_steps": 4, "candidate_steps": [0, 1]}
        self.config: RunConfig = config_for(folder, **{**values, **changes})
        self.model: WanModel = open_model(folder, adapter=adapter)
        self.text: TextEmbeddings = embed(self.model)
        self.sampler: Sampler = build_sampler(self.config, self.model)
        self.meter = Meter()
        self.weights = dict(self.model.trainable())

    def disturb(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Change what the network answers."""
        sound: Velocity = self.model.velocity
        self.model.velocity = lambda *given: change(sound(*given))  # type: ignore[method-assign, assignment]

    def first_update(self, **rewards: Reward) -> FirstUpdate:
        """Roll out, score, weigh, replay."""
        config = self.config
        plans = [GroupPlan(group, group, group % 2) for group in range(3)]
        rollouts = roll_out(self.model, self.sampler, self.text, plans, 0, self.meter)
        videos = [VideoBatch(self.model.decode(r.latents), ["a"] * 4, [{}] * 4, 8.0) for r in rollouts]
        scores = {name: torch.stack([judge(v) for v in videos]) for name, judge in rewards.items()}
        advantages = group_advantages(scores, dict.fromkeys(scores, 1.0), "batch", 5.0)
        report = replay(
            self.model, self.sampler, self.text, rollouts, advantages.values, 3,
            ReplaySettings(8, config.clip, 0.0, 1.0), lambda loss, *_: loss.backward(), self.meter,
        )  # fmt: skip
        gradients = {name: weight.grad for name, weight in self.weights.items()}
        return FirstUpdate(0, plans, scores, advantages, report, self.weights, gradients)

    def findings(self, update: FirstUpdate) -> dict[str, Finding]:
        config = self.config.model_copy(update={"rewards": dict.fromkeys(update.rewards, 1.0)})
        found = check_first_update(config, self.model, self.sampler, self.text, update, alone)
        return {finding.code: finding for finding in found}


def levels(findings: Mapping[str, Finding]) -> dict[str, str]:
    return {code: finding.level for code, finding in findings.items() if finding.level != "ok"}


@pytest.fixture
def patient(tiny_folder: Path) -> Patient:
    return Patient(tiny_folder)


def test_a_healthy_run_passes_every_check(patient: Patient) -> None:
    findings = patient.findings(patient.first_update(brightness=brightness))
    assert levels(findings) == {}
    assert set(findings) == {"drift", "determinism", "groups", "rewards", "dead_groups", "gradients"}
    assert findings["drift"].measured["drift"] < 1e-5
    assert findings["dead_groups"].measured == {"dead": 0, "groups": 3, "effective_rollouts": 12}
    heed(list(findings.values()), [], warn=pytest.fail)


def test_the_checks_touch_nothing(patient: Patient) -> None:
    update = patient.first_update(brightness=brightness)
    patient.disturb(lambda v: v + random.random() * float(np.random.rand()) * torch.rand(()))  # draws everywhere
    optimizer = torch.optim.AdamW(patient.weights.values())

    def state() -> list[Any]:
        tensors = [t for w in patient.weights.values() for t in (w.detach().clone(), w.grad)]
        dice = [random.getstate(), np.random.get_state()[1], torch.random.get_rng_state()]
        return [*tensors, *dice, optimizer.state_dict()["state"], patient.meter.nfe, patient.meter.cost]

    before = state()
    assert patient.findings(update)["determinism"].level == "refusal"  # it did draw
    for one, other in zip(before, state(), strict=True):
        assert np.array_equal(one, other) if isinstance(one, np.ndarray | torch.Tensor) else one == other
    # Negative control: a draw without the doctor's care would have been seen.
    torch.rand(())
    assert not torch.equal(before[-4], torch.random.get_rng_state())


@pytest.mark.parametrize(("offset", "level"), [(0.0, "ok"), (1e-6, "ok"), (0.1, "refusal")])
def test_a_model_whose_replay_differs_is_refused(patient: Patient, offset: float, level: str) -> None:
    patient.disturb(lambda v: v + offset if torch.is_grad_enabled() else v)
    finding = patient.findings(patient.first_update(brightness=brightness))["drift"]
    assert finding.level == level
    assert (finding.measured["clip"] < 3 * finding.measured["drift"]) == (level == "refusal")
    if level == "refusal":
        with pytest.raises(InputError, match=r"raise clip above .* use dtype float32 \(to go on .*=\[drift\]\)"):
            heed([finding], [], warn=pytest.fail)


def test_the_drift_is_judged_against_the_clip(patient: Patient) -> None:
    patient.disturb(lambda v: v + 0.1 if torch.is_grad_enabled() else v)
    update = patient.first_update(brightness=brightness)
    for clip, level in ((2.9, "refusal"), (3.1, "ok")):
        patient.config = patient.config.model_copy(update={"clip": clip * update.report.drift})
        assert patient.findings(update)["drift"].level == level


def test_a_replay_of_no_numbers_is_refused(patient: Patient) -> None:
    patient.disturb(lambda v: v * float("nan") if torch.is_grad_enabled() else v)
    findings = patient.findings(patient.first_update(brightness=brightness))
    assert levels(findings) == {"drift": "refusal", "gradients": "refusal"}
    assert "expected a finite loss" in findings["drift"].sentence
    assert "have gradients that are not finite, such as 'blocks." in findings["gradients"].sentence


@pytest.mark.parametrize(("strength", "level"), [(0.0, "ok"), (1e-6, "warning"), (0.3, "refusal")])
def test_sampling_that_does_not_repeat_is_found(patient: Patient, strength: float, level: str) -> None:
    update = patient.first_update(brightness=brightness)
    patient.disturb(lambda v: v + strength * torch.randn(v.shape))
    finding = patient.findings(update)["determinism"]
    assert finding.level == level
    assert (finding.measured["gap"] == 0) == (level == "ok")


def spoilt(videos: VideoBatch) -> torch.Tensor:
    return torch.full((len(videos),), float("nan"))


def test_scores_of_no_numbers_are_refused(patient: Patient) -> None:
    finding = patient.findings(patient.first_update(brightness=brightness, spoilt=spoilt))["rewards"]
    assert finding.level == "refusal"
    assert finding.sentence.startswith("12 of 12 scores of reward 'spoilt' are not finite; expected none; mend")


def test_a_constant_reward_is_refused_and_one_of_two_warned_of(patient: Patient) -> None:
    findings = patient.findings(patient.first_update(constant=constant))
    assert levels(findings) == {"dead_groups": "refusal"}
    assert findings["dead_groups"].sentence.startswith("in 3 of 3 groups all rewards are the same, which leaves 0")
    findings = patient.findings(patient.first_update(constant=constant, brightness=brightness))
    assert levels(findings) == {"rewards": "warning"}
    assert findings["rewards"].sentence.startswith("'constant' gave all rollouts of every group the same score")
    assert findings["rewards"].measured["range/constant"] == 0 < findings["rewards"].measured["range/brightness"]


def test_dead_groups_are_found_by_range_not_by_spread(patient: Patient) -> None:
    flat = 0.1 + torch.tensor([0.0, 1e-7, 2e-7, 0.0])  # rounding: a spread above 0, and nothing to learn from
    assert flat.std() > 0
    update = patient.first_update(brightness=brightness)
    for dead, level in ((1, "ok"), (2, "warning"), (3, "refusal")):
        scores = update.rewards["brightness"].clone()
        scores[:dead] = flat
        sick = replace(update, advantages=group_advantages({"r": scores}, {"r": 1.0}, "batch", 5.0))
        finding = patient.findings(sick)["dead_groups"]
        assert (finding.level, finding.measured["dead"]) == (level, dead)
        assert finding.measured["effective_rollouts"] == (3 - dead) * 4


def test_groups_of_the_wrong_size_are_refused(patient: Patient) -> None:
    update = patient.first_update(brightness=brightness)
    patient.config = patient.config.model_copy(update={"group_size": 5})
    finding = patient.findings(update)["groups"]
    assert finding.level == "refusal"
    assert "came as [3, 4] scores; expected 3 groups of 5" in finding.sentence


def test_a_fresh_adapter_trains_its_b_matrices_first(patient: Patient, tiny_folder: Path) -> None:
    fresh = patient.findings(patient.first_update(brightness=brightness))["gradients"]
    assert fresh.level == "ok"
    assert fresh.measured["waiting"] == fresh.measured["tensors"] / 2 > 0
    assert fresh.measured["parameters"] == sum(weight.numel() for weight in patient.weights.values())
    used = Patient(tiny_folder, adapter=0.1)
    update = used.first_update(brightness=brightness)
    assert used.findings(update)["gradients"].measured["waiting"] == 0
    # Negative control: an A matrix whose B is in use has no excuse.
    name = next(name for name in used.weights if "lora_A" in name)
    assert update.gradients is not None
    still = {**update.gradients, name: torch.zeros_like(used.weights[name])}
    finding = used.findings(replace(update, gradients=still))["gradients"]
    assert (finding.level, finding.measured["lost"]) == ("warning", 1)
    assert f"1 of them got no gradient, such as {name!r}; they will never learn" in finding.sentence


def test_a_frozen_weight_is_found(patient: Patient) -> None:
    name = next(name for name in patient.weights if "lora_B" in name)
    patient.weights[name].requires_grad_(False)
    finding = patient.findings(patient.first_update(brightness=brightness))["gradients"]
    assert (finding.level, finding.measured["lost"]) == ("warning", 1)
    assert repr(name) in finding.sentence


def test_a_loss_that_reaches_no_weight_is_refused(patient: Patient) -> None:
    patient.disturb(lambda v: v.detach().requires_grad_(torch.is_grad_enabled()))
    finding = patient.findings(patient.first_update(brightness=brightness))["gradients"]
    assert finding.level == "refusal"
    assert "none of them got a gradient: the loss does not reach the weights" in finding.sentence


def test_gradients_kept_elsewhere_are_not_judged(patient: Patient) -> None:
    update = replace(patient.first_update(brightness=brightness), gradients=None)
    assert "gradients" not in patient.findings(update)


def test_what_is_wrong_in_another_process_is_refused_here_too(patient: Patient) -> None:
    update = patient.first_update(brightness=brightness)

    def beside(name: str, value: float) -> Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]:
        """Another process whose measurement of one thing is bad."""
        return lambda rows: {
            n: torch.cat([row, torch.tensor([[value]])]) if n == name else row for n, row in rows.items()
        }

    for name, value, code in (
        ("drift", 0.1, "drift"), ("gap", 1.0, "determinism"), ("spoilt", 2.0, "gradients")
    ):  # fmt: skip
        config = patient.config.model_copy(update={"rewards": {"brightness": 1.0}})
        found = check_first_update(config, patient.model, patient.sampler, patient.text, update, beside(name, value))
        assert levels({finding.code: finding for finding in found}) == {code: "refusal"}
    config = build_config("micro")
    found = check_setup(config, Path("/"), RewardSet(config.rewards), 10, beside("failed", 1.0))
    assert next(f for f in found if f.code == "self_tests").sentence.startswith(
        "a reward failed its self-test in another"
    )


def disk_with(free: float) -> Callable[[object], Any]:
    return lambda path: SimpleNamespace(free=int(free))


def setup(config: RunConfig, folder: Path, trained: int = 10_000_000) -> dict[str, Finding]:
    rewards = RewardSet(config.rewards, config.reward_options)
    return {finding.code: finding for finding in check_setup(config, folder, rewards, trained, alone)}


@pytest.mark.parametrize(("share", "level"), [(0.99, "refusal"), (1.5, "warning"), (2.5, "ok")])
def test_a_full_disk_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float, level: str) -> None:
    config = build_config("pocket")
    needed = disk_of_run(config, 10_000_000, config.validation_limit, config.heldout_limit).most
    monkeypatch.setattr(shutil, "disk_usage", disk_with(share * needed))
    finding = setup(config, tmp_path / "not" / "there" / "yet")["disk"]
    assert finding.level == level
    assert finding.measured["needed_bytes"] == needed == pytest.approx(finding.measured["free_bytes"] / share, rel=1e-6)
    if level == "refusal":
        assert "the run will write about" in finding.sentence and "choose another --output" in finding.sentence


def test_the_disk_estimate_follows_the_configuration() -> None:
    def needed(trained: int = 10_000_000, **changes: Any) -> float:
        config = build_config("pocket", changes)
        return disk_of_run(config, trained, config.validation_limit, config.heldout_limit).most

    assert needed(20_000_000) > 1.9 * needed() > 0
    assert needed(ema_decay=0.9) > 1.3 * needed()
    assert needed(optimizer="sgd") < needed() / 2
    assert needed(keep_checkpoints=10, checkpoint_every=1) > 2 * needed()
    assert needed(0, videos_saved=100, heldout_limit=100) > 3 * needed(0) > needed(0, evaluate_every=0) > 0


def test_the_size_of_an_update_is_held_against_what_works() -> None:
    def size(**changes: Any) -> Finding:
        return update_size(build_config("pocket", changes))

    assert size().level == size(prompts_per_update=6).level == "ok"
    small = size(prompts_per_update=5)
    assert small.level == "warning" and "raise prompts_per_update to 6" in small.sentence
    assert size(prompts_per_update=36, group_size=2).level == "warning"
    assert update_size(build_config("flash-grpo-paper")).level == "ok"  # the recipe it is held against
    wan = update_size(build_config("wan2.1-1.3b"))
    assert wan.level == "warning" and "has 64 rollouts (8 prompts x 8); 192 is what the published" in wan.sentence


def test_self_tests_are_part_of_the_set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = build_config("pocket")
    assert levels(setup(config, tmp_path)) == {}
    monkeypatch.setattr("flash_grpo.rewards.sharpness.Sharpness.score", lambda self, videos: torch.zeros(len(videos)))
    findings = setup(config, tmp_path)
    assert levels(findings) == {"self_tests": "refusal"}  # watched rewards too must be sound
    assert "reward 'sharpness' gave 0 to the better and 0 to the worse" in findings["self_tests"].sentence


def test_refusals_raise_warnings_are_told_and_both_can_be_ignored() -> None:
    bad = Finding("drift", "refusal", "they differ")
    worse = Finding("disk", "refusal", "it is full")
    odd = Finding("rollouts", "warning", "they are few")
    fine = Finding("groups", "ok", "all there")

    def told(findings: Sequence[Finding], *ignored: str) -> list[str]:
        seen: list[Finding] = []
        heed(findings, ignored, seen.append)
        return [finding.code for finding in seen]

    assert told([fine, odd]) == ["rollouts"]
    assert told([fine, odd], "rollouts") == []
    assert told([bad, odd], "drift") == ["drift", "rollouts"]
    with pytest.raises(
        InputError, match=r"^they differ; it is full \(to go on all the same: ignore_checks=\[drift, disk\]"
    ):
        told([bad, worse])
    with pytest.raises(InputError, match="^it is full"):
        told([bad, worse], "drift")


def test_processes_that_differ_are_refused() -> None:
    assert ranks_agree(True, 1).level == "ok"
    finding = ranks_agree(False, 20)
    assert finding.level == "refusal" and "hold different weights after update 20" in finding.sentence


@pytest.mark.parametrize(
    ("history", "patience", "declining"),
    [
        ([0.0, 3.0, 2.0, 1.0], 2, True),
        ([0.0, 3.0, 2.0, 1.0], 3, False),
        ([4.0, 3.0, 2.0, 1.0], 3, True),
        ([3.0, 2.0, 2.0, 1.0], 2, False),  # equal is no decline
        ([3.0, 1.0, 2.0, 1.0], 2, False),
        ([2.0, 1.0], 2, False),  # too few to tell
        ([2.0, 1.0], 0, False),
        ([], 1, False),
        ([1.0, float("nan"), 0.0], 2, False),
    ],
)
def test_a_decline_is_so_many_falls_in_a_row(history: list[float], patience: int, declining: bool) -> None:
    assert reward_declining(history, patience) is declining


def test_an_adapter_that_does_nothing_is_found(tiny_folder: Path) -> None:
    weights = {name: weight.detach() for name, weight in open_model(tiny_folder, adapter=0.1).trainable()}
    assert adapter_problem(weights) is None
    assert "holds no weights" in str(adapter_problem({}))
    fresh = {name: torch.zeros_like(w) if "lora_B" in name else w for name, w in weights.items()}
    assert "changes nothing" in str(adapter_problem(fresh))
    name = next(name for name in weights if "lora_A" in name)
    for bad in (float("nan"), float("inf")):
        sick = weights[name].clone()
        sick[0, 0] = bad
        assert f"{name!r} holds values that are not finite" in str(adapter_problem({**weights, name: sick}))
    assert "all 1 of its" in str(adapter_problem({"transformer.proj_out.weight": torch.zeros(3)}))
    assert adapter_problem({"transformer.proj_out.weight": torch.tensor([0.0, 1e-30])}) is None
