"""Sigma grids, noise-level rules, rectification weights and the iso-temporal draw of the branch step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from flash_grpo.errors import InputError

if TYPE_CHECKING:
    from flash_grpo.kernel import Transition

NoiseRule = Literal["flash", "flow", "dance", "cps"]
DEFAULT_ETA: dict[str, float] = {"flash": 1.0, "flow": 0.7, "dance": 0.3, "cps": 0.8}


@dataclass(frozen=True)
class SigmaGrid:
    """The pipeline scheduler's own grid: N timesteps as the network takes them, N+1 sigmas ending at 0."""

    timesteps: tuple[float, ...]
    sigmas: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Number of denoising steps."""
        return len(self.timesteps)


def scheduler_with_shift(scheduler: Any, shift: float | None) -> Any:
    """A fresh scheduler of the same class and configuration, with its flow shift replaced unless `shift` is None."""
    if shift is None:
        return type(scheduler).from_config(scheduler.config)
    key = "flow_shift" if "flow_shift" in scheduler.config else "shift"
    return type(scheduler).from_config(scheduler.config, **{key: shift})


def sigma_grid(scheduler: Any, steps: int, shift: float | None = None) -> SigmaGrid:
    """The grid a diffusers flow scheduler (UniPC with flow sigmas, flow Euler) uses for `steps` steps."""
    fresh = scheduler_with_shift(scheduler, shift)
    fresh.set_timesteps(steps)
    sigmas = tuple(float(s) for s in getattr(fresh, "sigmas", ()))
    falling = all(later < earlier for earlier, later in pairwise(sigmas))
    if not sigmas or not falling or not 0 < sigmas[0] <= 1:
        raise InputError(
            f"{type(scheduler).__name__} gives sigmas that do not fall from 1 to 0; "
            "use a flow-matching scheduler (UniPC with use_flow_sigmas, or flow Euler)"
        )
    return SigmaGrid(tuple(float(t) for t in fresh.timesteps), sigmas)


def noise_level(rule: NoiseRule, sigmas: Sequence[float], step: int, eta: float | None = None) -> float:
    """Noise level s of one step by rule; `eta` scales it and defaults to the rule's own.

    flash: eta * (sigma_min + (sigma_max - sigma_min) sigma), sigma_max the second sigma, sigma_min the last.
    flow: eta * sqrt(sigma / (1 - min(sigma, sigmas[1]))). dance: eta. cps: sigma_next * sin(eta pi / 2).
    """
    strength = DEFAULT_ETA[rule] if eta is None else eta
    sigma = sigmas[step]
    if rule == "flash":
        return strength * (sigmas[-1] + (sigmas[1] - sigmas[-1]) * sigma)
    if rule == "flow":
        return strength * math.sqrt(sigma / (1 - min(sigma, sigmas[1])))
    if rule == "dance":
        return strength
    if strength > 1:
        raise InputError(f"eta of the cps rule lies in 0..1, got {strength}")
    return sigmas[step + 1] * math.sin(strength * math.pi / 2)


def branch_transition(rule: NoiseRule, grid: SigmaGrid, step: int, eta: float | None = None) -> Transition:
    """The stochastic transition of one step under a noise rule."""
    from flash_grpo.kernel import cps_transition, sde_transition  # a plan draws steps without torch

    level = noise_level(rule, grid.sigmas, step, eta)
    build = cps_transition if rule == "cps" else sde_transition
    return build(grid.sigmas[step], grid.sigmas[step + 1], level)


def rectification_weights(scales: Sequence[float]) -> list[float]:
    """weight(k) = (1 / lambda(k)) / mean of 1 / lambda over the candidate set."""
    inverse = [1 / scale for scale in scales]
    mean = sum(inverse) / len(inverse)
    return [value / mean for value in inverse]


def draw_step(seed: int, update: int, group: int, groups: int, candidates: Sequence[int]) -> int:
    """The branch step of one group: candidates are dealt round in seeded permutations, continued over updates.

    A pure function of its arguments (`group` is the index in the update's global order), so all ranks agree without a
    broadcast, every deal of len(candidates) groups covers the schedule evenly, and a resumed run draws the same.
    """
    deal, position = divmod(update * groups + group, len(candidates))

    def rank(step: int) -> bytes:
        return hashlib.sha256(f"branch-step:{seed}:{deal}:{step}".encode()).digest()

    return sorted(candidates, key=rank)[position]


@dataclass(frozen=True)
class ScheduleStep:
    """One row of `flash-grpo schedule`; None where a value is not finite or the step is no candidate."""

    index: int
    timestep: float
    sigma: float
    noise_level: float | None
    lambda_: float | None
    inverse_lambda: float | None
    weight: float | None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def describe_grid(
    grid: SigmaGrid, rule: NoiseRule, eta: float | None, candidates: Sequence[int] | None
) -> list[ScheduleStep]:
    """Every step of a grid with its noise level, lambda and weight; candidates default to the first half."""
    chosen = list(range(max(1, grid.steps // 2))) if candidates is None else list(candidates)
    outside = [step for step in chosen if not 0 <= step < grid.steps]
    if outside or not chosen:
        raise InputError(f"candidate steps must lie in 0..{grid.steps - 1}, got {outside or chosen}")
    transitions = [branch_transition(rule, grid, step, eta) for step in range(grid.steps)]
    scales = [t.gradient_scale for t in transitions]
    unusable = [step for step in chosen if not 0 < scales[step] < math.inf]
    if unusable:
        raise InputError(f"candidate steps {unusable} carry no noise under the {rule} rule; leave them out")
    weights = dict(zip(chosen, rectification_weights([scales[step] for step in chosen]), strict=True))
    return [
        ScheduleStep(
            index=step,
            timestep=grid.timesteps[step],
            sigma=grid.sigmas[step],
            noise_level=_finite(noise_level(rule, grid.sigmas, step, eta)),
            lambda_=_finite(scales[step]),
            inverse_lambda=_finite(1 / scales[step]) if scales[step] > 0 else None,
            weight=weights.get(step),
        )
        for step in range(grid.steps)
    ]


def describe_schedule(
    scheduler: Literal["unipc", "euler"],
    steps: int,
    shift: float,
    noise_level: NoiseRule,
    eta: float | None,
    candidates: Sequence[int] | None,
) -> list[ScheduleStep]:
    """The schedule table of a named scheduler, without any model."""
    from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

    if steps < 2:
        raise InputError(f"steps must be at least 2, got {steps}")
    if not shift > 0 or not math.isfinite(shift):
        raise InputError(f"shift must be a positive number, got {shift}")
    if scheduler == "unipc":
        base = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)
    else:
        base = FlowMatchEulerDiscreteScheduler(shift=shift)
    return describe_grid(sigma_grid(base, steps), noise_level, eta, candidates)


def draw_prompts(seed: int, update: int, groups: int, prompts: int) -> list[int]:
    """Prompt indices of an update's groups: seeded permutations of all prompts, continued over updates."""
    chosen = []
    for slot in range(update * groups, (update + 1) * groups):
        deal, position = divmod(slot, prompts)
        chosen.append(_permutation(seed, deal, prompts)[position])
    return chosen


@lru_cache(maxsize=4)
def _permutation(seed: int, deal: int, count: int) -> list[int]:
    return sorted(range(count), key=lambda i: hashlib.sha256(f"prompt:{seed}:{deal}:{i}".encode()).digest())
