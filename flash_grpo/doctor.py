"""Checks before money is spent, and while it is: every finding is a sentence and the figures behind it.

`check_setup` needs no network; `check_first_update` reads what the first update holds between its backward and its
optimiser step, so that only the check for deterministic sampling costs anything. Neither touches the weights, their
gradients, the optimiser, a random state or the run's meter.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from flash_grpo.advantage import DEAD_RANGE, Advantages
from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.models.base import TextEmbeddings, VideoModel
from flash_grpo.planning.disk import disk_of_run
from flash_grpo.replay import ReplayReport
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rewards.self_test import self_test
from flash_grpo.rollout import GroupPlan, Meter, Sampler, roll_out

Level = Literal["ok", "warning", "refusal"]
Gather = Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]

DRIFT_MARGIN = 3.0  # clip over drift below which clipping silences rollouts at random
LARGEST_REPEAT_GAP = 0.01  # relative difference of two samplings of one seed that no longer is rounding
DEAD_SHARE = 0.5
SMALLEST_GROUP = 4
ROLLOUTS_KNOWN = {"pocket": 72, "other": 192}  # per update: our measurement on the pocket model; the published recipe
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """One check's outcome; the sentence says what was measured, what was expected and what to do."""

    code: str
    level: Level
    sentence: str
    measured: Mapping[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """As JSON has it; a number that is not finite becomes null."""
        figures = {name: value if math.isfinite(value) else None for name, value in self.measured.items()}
        return {"code": self.code, "level": self.level, "sentence": self.sentence, "measured": figures}


@dataclass(frozen=True)
class FirstUpdate:
    """What an update holds between its backward and its optimiser step.

    `rewards` (each [groups, K]) and `advantages` are of all processes, `report` and `weights` of this one. `gradients`
    is None where the training strategy keeps them elsewhere; then they are not judged.
    """

    number: int
    plans: Sequence[GroupPlan]
    rewards: Mapping[str, torch.Tensor]
    advantages: Advantages
    report: ReplayReport
    weights: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor | None] | None


def heed(findings: Sequence[Finding], ignored: Sequence[str], warn: Callable[[Finding], None]) -> None:
    """Hand every warning to `warn`, then raise InputError with the sentences of all refusals, if there are any.

    A check named in `ignored` is lowered by one level: its refusals only warn, its warnings are silent.
    """
    settled = lowered(findings, ignored)
    for finding in settled:
        if finding.level == "warning":
            warn(finding)
    refusals = [finding for finding in settled if finding.level == "refusal"]
    if refusals:
        codes = ", ".join(dict.fromkeys(finding.code for finding in refusals))
        sentences = "; ".join(finding.sentence for finding in refusals)
        raise InputError(f"{sentences} (to go on all the same: ignore_checks=[{codes}])")


def lowered(findings: Sequence[Finding], ignored: Sequence[str]) -> list[Finding]:
    """The findings, those of ignored checks lowered by one level."""
    lower: dict[Level, Level] = {"refusal": "warning", "warning": "ok", "ok": "ok"}
    return [replace(f, level=lower[f.level]) if f.code in ignored else f for f in findings]


# before the first forward -------------------------------------------------------------------------------------------


def check_setup(config: RunConfig, folder: Path, rewards: RewardSet, trained: int, gather: Gather) -> list[Finding]:
    """Size of an update, room on the disk of `folder` and self-tests of the rewards; takes milliseconds.

    `trained` is the number of trained parameters. All processes come to the same findings.
    """
    tests = {name: self_test(rewards, name, config.reward_options.get(name, {})) for name in config.rewards}
    problems = [problem for problem in tests.values() if problem]
    worst = _worst({"free": -float(free_bytes(folder)), "failed": float(len(problems))}, gather)
    if worst["failed"] and not problems:
        problems = ["a reward failed its self-test in another process; see that process's output"]
    figures = {"failed": worst["failed"]}
    disk = disk_of_run(config, trained, config.validation_limit, config.heldout_limit)
    return [
        update_size(config),
        disk_room(folder, -worst["free"], disk.most),
        Finding("self_tests", "refusal", "; ".join(problems), figures)
        if problems
        else Finding("self_tests", "ok", "every reward that has a self-test passed it", figures),
    ]


def update_size(config: RunConfig) -> Finding:
    """Judge prompts x group against what is known to work."""
    rollouts = config.prompts_per_update * config.group_size
    pocket = config.model.startswith("pocket")
    known = ROLLOUTS_KNOWN["pocket" if pocket else "other"]
    figures = {"rollouts": float(rollouts), "known": float(known), "group_size": float(config.group_size)}
    said = f"an update has {rollouts} rollouts ({config.prompts_per_update} prompts x {config.group_size})"
    if config.group_size < SMALLEST_GROUP:
        return Finding(
            "rollouts", "warning", f"{said}; expected groups of {SMALLEST_GROUP} or more; raise group_size", figures
        )
    if rollouts < known:
        source = "was measured to learn on the pocket model" if pocket else "is what the published recipe learns from"
        prompts = -(-known // config.group_size)
        advice = f"raise prompts_per_update to {prompts}, or expect the reward to rise late or not at all"
        return Finding("rollouts", "warning", f"{said}; {known} {source}; {advice}", figures)
    return Finding("rollouts", "ok", f"{said}; {known} are known to work", figures)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder that may not exist yet."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def disk_room(folder: Path, free: float, needed: float) -> Finding:
    """Judge free against needed bytes."""
    figures = {"free_bytes": free, "needed_bytes": needed}
    said = f"the run will write about {_size(needed)} to {folder}, where {_size(free)} are free"
    if free < needed:
        advice = "free some, choose another --output, or lower videos_saved and validate less often"
        return Finding("disk", "refusal", f"{said}; {advice}", figures)
    if free < 2 * needed:
        return Finding("disk", "warning", f"{said}; expected twice as much; free some before it runs full", figures)
    return Finding("disk", "ok", said, figures)


def _size(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


# between the first backward and the first optimiser step ------------------------------------------------------------


def check_first_update(
    config: RunConfig,
    model: VideoModel,
    sampler: Sampler,
    embeddings: TextEmbeddings,
    update: FirstUpdate,
    gather: Gather,
) -> list[Finding]:
    """Drift, sampling, groups, rewards and gradients of one update; all processes come to the same findings."""
    gap = repeat_gap(model, sampler, embeddings, update.plans[0], update.number)
    # A maximum over numbers hides one that is none; the loss does not.
    drift = update.report.drift if math.isfinite(update.report.loss) else math.inf
    worst = _worst({"drift": drift, "gap": gap}, gather)
    findings = [
        drift_against_clip(worst["drift"], config.clip),
        sampling_repeats(worst["gap"]),
        group_shape(config, update.rewards),
        *reward_health(config, update.rewards, update.advantages),
    ]
    if update.gradients is not None and not bool(update.advantages.dead.all()):
        findings.append(gradient_flow(update.weights, update.gradients, gather))
    return findings


def drift_against_clip(drift: float, clip: float) -> Finding:
    """Judge |log-ratio| of rollout and replay before any optimiser step, which should be rounding alone."""
    figures = {"drift": drift, "clip": clip}
    said = f"rollout and replay differ by {drift:.1e} (|log-ratio|) before any update; clip is {clip:.1e}"
    if not math.isfinite(drift):
        return Finding("drift", "refusal", f"{said}; expected a finite loss; use dtype float32", figures)
    least = DRIFT_MARGIN * drift
    if clip < least:
        advice = f"clipping would silence rollouts at random; raise clip above {least:.1e} or use dtype float32"
        return Finding("drift", "refusal", f"{said}; expected {DRIFT_MARGIN:g} x drift or more: {advice}", figures)
    return Finding("drift", "ok", said, figures)


def repeat_gap(model: VideoModel, sampler: Sampler, embeddings: TextEmbeddings, plan: GroupPlan, update: int) -> float:
    """Sample two rollouts of one group twice from the same seeds: largest difference over the latents' spread."""
    pair = replace(sampler, group_size=2)
    with untouched_random_state(model.device):
        one, other = (roll_out(model, pair, embeddings, [plan], update, Meter())[0].latents for _ in range(2))
    return 0.0 if torch.equal(one, other) else float((one - other).abs().max() / (one.std() + 1e-12))


@contextmanager
def untouched_random_state(device: torch.device) -> Iterator[None]:
    """Afterwards the random states of Python, numpy and torch are what they were."""
    python, array = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


def sampling_repeats(gap: float) -> Finding:
    """Judge the difference of two samplings of one seed."""
    figures = {"gap": gap}
    if gap == 0:
        return Finding("determinism", "ok", "the same seed gives the same latents bit for bit", figures)
    said = f"two samplings of one seed differ by {gap:.1e} of the latents' spread; expected not a bit"
    if gap < LARGEST_REPEAT_GAP:
        advice = "a resumed run will not repeat exactly; look for nondeterministic kernels on this device"
        return Finding("determinism", "warning", f"{said}: {advice}", figures)
    advice = "before and after could not be compared; look for dropout or noise left on in the model"
    return Finding("determinism", "refusal", f"{said}: {advice}", figures)


def group_shape(config: RunConfig, rewards: Mapping[str, torch.Tensor]) -> Finding:
    """See that every group of the update is there and full."""
    wanted = (config.prompts_per_update, config.group_size)
    for name, values in rewards.items():
        if tuple(values.shape) != wanted:
            said = f"reward {name!r} came as {list(values.shape)} scores; expected {wanted[0]} groups of {wanted[1]}"
            return Finding("groups", "refusal", f"{said}; report this, the rollouts were shared out wrongly")
    figures = {"groups": float(wanted[0]), "group_size": float(wanted[1])}
    return Finding("groups", "ok", f"{wanted[0]} groups of {wanted[1]} rollouts", figures)


def reward_health(config: RunConfig, rewards: Mapping[str, torch.Tensor], advantages: Advantages) -> Iterator[Finding]:
    """Finite scores; and by the range within groups, which groups and which weighted rewards carry a signal."""
    for name, values in rewards.items():
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            said = f"{bad} of {values.numel()} scores of reward {name!r} are not finite; expected none"
            yield Finding("rewards", "refusal", f"{said}; mend the reward or leave it out", {"bad": float(bad)})
            return
    ranges = {n: (v.amax(1) - v.amin(1)) for n, v in rewards.items() if config.rewards.get(n)}
    figures = {f"range/{name}": float(values.mean()) for name, values in ranges.items()}
    flat = [name for name, values in ranges.items() if float(values.max()) <= DEAD_RANGE]
    if flat and len(flat) < len(ranges):
        said = f"{', '.join(map(repr, flat))} gave all rollouts of every group the same score"
        yield Finding("rewards", "warning", f"{said}; expected a difference to learn from; drop or mend it", figures)
    else:
        yield Finding("rewards", "ok", "all scores are finite", figures)
    yield dead_groups(config.group_size, advantages.dead)


def dead_groups(group_size: int, dead: torch.Tensor) -> Finding:
    """Judge the share of groups in which no weighted reward tells one rollout from another."""
    count, total = int(dead.sum()), len(dead)
    effective = (total - count) * group_size
    figures = {"dead": float(count), "groups": float(total), "effective_rollouts": float(effective)}
    if not count:
        return Finding("dead_groups", "ok", f"all {total} groups carry a signal: {effective} rollouts", figures)
    said = f"in {count} of {total} groups all rewards are the same, which leaves {effective} rollouts to learn from"
    advice = "use a reward with finer steps, more noise (eta, noise_level), earlier candidate_steps or larger groups"
    if count == total:
        return Finding("dead_groups", "refusal", f"{said}; expected a difference in at least one: {advice}", figures)
    if count > DEAD_SHARE * total:
        return Finding("dead_groups", "warning", f"{said}; expected at most half the groups: {advice}", figures)
    return Finding("dead_groups", "ok", said, figures)


def gradient_flow(
    weights: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor | None], gather: Gather
) -> Finding:
    """See that every trained tensor gets a gradient; a LoRA's A matrix cannot while its B is zero, and is excused."""
    missing = [name for name in weights if gradients[name] is None]
    present = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    spoilt = [name for name, gradient in present.items() if not bool(torch.isfinite(gradient).all())]
    still = [name for name, gradient in present.items() if not bool(gradient.any())]
    waiting = [name for name in still if _waits_for_b(name, weights)]
    lost = missing + [name for name in still if name not in waiting]
    counts = {"spoilt": len(spoilt), "lost": len(lost), "waiting": len(waiting)}
    figures = _worst({name: float(count) for name, count in counts.items()}, gather)
    figures["tensors"], figures["parameters"] = float(len(weights)), float(sum(w.numel() for w in weights.values()))
    said = f"{len(weights)} tensors with {figures['parameters']:,.0f} parameters train"
    if figures["spoilt"]:
        advice = f"{_such_as(spoilt)}; expected none; lower learning_rate or use dtype float32"
        sentence = f"{said}; {figures['spoilt']:.0f} of them have gradients that are not finite, {advice}"
        return Finding("gradients", "refusal", sentence, figures)
    if figures["lost"] + figures["waiting"] >= len(weights):
        advice = "the loss does not reach the weights; check gradient_checkpointing, adapter and lora_targets"
        return Finding("gradients", "refusal", f"{said}; none of them got a gradient: {advice}", figures)
    if figures["lost"]:
        advice = f"{_such_as(lost)}; they will never learn; check lora_targets and what was frozen"
        return Finding(
            "gradients", "warning", f"{said}; {figures['lost']:.0f} of them got no gradient, {advice}", figures
        )
    wait = (
        f", but for {len(waiting)} LoRA A matrices that must wait for their B, which starts at zero" if waiting else ""
    )
    return Finding("gradients", "ok", f"{said}; all get gradients{wait}", figures)


def _such_as(names: Sequence[str]) -> str:
    return f"such as {names[0]!r}" if names else "in another process"


def _waits_for_b(name: str, weights: Mapping[str, torch.Tensor]) -> bool:
    partner = weights.get(name.replace("lora_A", "lora_B")) if "lora_A" in name else None
    return partner is not None and not bool(partner.any())


# later on -----------------------------------------------------------------------------------------------------------


def ranks_agree(same: bool, update: int) -> Finding:
    """Judge whether all processes hold the same weights, bit for bit (`Runtime.same_everywhere`)."""
    if same:
        return Finding("ranks", "ok", f"all processes hold the same weights after update {update}")
    said = f"the processes hold different weights after update {update}; expected not a bit of difference"
    return Finding("ranks", "refusal", f"{said}: gradients are not synchronised; the run would train several models")


def reward_declining(history: Sequence[float], patience: int) -> bool:
    """Whether each of the last `patience` values is below the one before it; 0 is never, equal is no decline."""
    if patience < 1 or len(history) <= patience:
        return False
    last = history[-patience - 1 :]
    return all(after < before for before, after in pairwise(last))


def adapter_problem(weights: Mapping[str, torch.Tensor]) -> str | None:
    """What is wrong with trained weights, or None: no tensors, a value that is not finite, or nothing but zeros.

    A LoRA whose B matrices (names holding `lora_B`) are all zero changes nothing either, whatever its A matrices hold.
    """
    if not weights:
        return "the adapter holds no weights; train at least one update and choose that checkpoint"
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            return f"the adapter's weight {name!r} holds values that are not finite; choose an earlier checkpoint"
    effective = {name: tensor for name, tensor in weights.items() if "lora_B" in name} or weights
    if not any(bool(tensor.any()) for tensor in effective.values()):
        return (
            f"the adapter changes nothing: all {len(effective)} of its effective weight tensors are zero; "
            "train at least one update, or choose another checkpoint"
        )
    return None


def _worst(values: Mapping[str, float], gather: Gather) -> dict[str, float]:
    """The largest of each number over all processes; what is no number counts as infinite."""
    rows = {n: torch.tensor([[v if not math.isnan(v) else math.inf]], dtype=torch.float32) for n, v in values.items()}
    return {name: float(row.max()) for name, row in gather(rows).items()}
