"""What to change when a plan does not fit: every change is planned anew, none is guessed. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flash_grpo.config import RunConfig
from flash_grpo.plan import GB, Plan, plan
from flash_grpo.planning.speed import TERA, Speed

NOMINAL = Speed(100 * TERA, 30 * TERA, "for comparing alone", "assumed")
"""Extra time is a ratio, so where no speed is known any GPU's serves."""
WORTH_TELLING = 0.01
"""Share of the peak that a change must save to be told."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Lever:
    """One way to need less: `next` gives the smallest further step, or None; `harmless` leaves the result as it was."""

    name: str
    harmless: bool
    next: Callable[[RunConfig], Values | None]
    on_cpu: bool = True


@dataclass(frozen=True)
class Change:
    """A change as planned: the peak it leads to, what it saves of the peak, and its time over the run's, less 1."""

    values: Values
    harmless: bool
    peak: float
    saves: float
    extra_time: float
    fits: bool

    def assignments(self) -> list[str]:
        """As `--set` takes them."""
        return [f"{key}={_written(value)}" for key, value in self.values.items()]

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "set": self.assignments(),
            "changes_result": not self.harmless,
            "peak_gb": self.peak / GB,
            "saves_gb": self.saves / GB,
            "extra_time": self.extra_time,
            "fits": self.fits,
        }


@dataclass(frozen=True)
class Advice:
    """Single changes, cheapest first, and the cheapest combination found that fits (None if none does)."""

    changes: tuple[Change, ...]
    combination: Change | None

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "changes": [change.plain() for change in self.changes],
            "combination": self.combination.plain() if self.combination else None,
        }


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _halved(key: str, least: int = 1) -> Callable[[RunConfig], Values | None]:
    def step(config: RunConfig) -> Values | None:
        value = int(getattr(config, key))
        return {key: max(least, value // 2)} if value > least else None

    return step


def _rollout_batch(config: RunConfig) -> Values | None:
    """Beyond what one update rolls out, a larger batch changes nothing."""
    value = min(config.rollout_batch, config.prompts_per_update * config.group_size)
    return {"rollout_batch": value // 2} if value > 1 else None


def _set(key: str, value: object, unless: object) -> Callable[[RunConfig], Values | None]:
    def step(config: RunConfig) -> Values | None:
        return None if getattr(config, key) == unless else {key: value}

    return step


def _adapter(config: RunConfig) -> Values | None:
    if config.adapter == "full":
        return {"adapter": "lora"}
    return {"lora_rank": config.lora_rank // 2, "lora_alpha": config.lora_alpha / 2} if config.lora_rank > 4 else None


def _frames(config: RunConfig) -> Values | None:
    fewer = (int(0.8 * config.frames) - 1) // 4 * 4 + 1
    return {"frames": fewer} if config.frames > 9 else None


def _resolution(config: RunConfig) -> Values | None:
    height, width = (max(64, int(0.9 * side) // 16 * 16) for side in (config.height, config.width))
    return {"height": height, "width": width} if min(config.height, config.width) > 128 else None


LEVERS = (
    Lever("decode_batch", True, _halved("decode_batch")),
    Lever("rollout_batch", True, _rollout_batch),
    Lever("replay_batch", True, _halved("replay_batch")),
    Lever("text_encoder_device", True, _set("text_encoder_device", "cpu", "cpu")),
    Lever("gradient_checkpointing", True, _set("gradient_checkpointing", True, True)),
    Lever("dtype", False, _set("dtype", "bfloat16", "bfloat16"), on_cpu=False),
    Lever("adapter", False, _adapter),
    Lever("ema_decay", False, _set("ema_decay", 0.0, 0.0)),
    Lever("kl_weight", False, _set("kl_weight", 0.0, 0.0)),
    Lever("guidance_scale", False, _set("guidance_scale", 1.0, 1.0)),
    Lever("frames", False, _frames),
    Lever("resolution", False, _resolution),
)
STEPS = 40
"""Most steps of the search for a combination."""


class _Search:
    """Plans variants of one plan."""

    def __init__(self, planned: Plan) -> None:
        self.base = self._again(planned, planned.config)
        assert self.base.memory_gb is not None and self.base.duration is not None
        self.limit = self.base.memory_gb * GB
        self.levers = [lever for lever in LEVERS if lever.on_cpu or self.base.kind == "gpu"]
        self.seconds = self.base.duration.total
        self.peak = self.base.footprint.highest()

    @staticmethod
    def _again(planned: Plan, config: RunConfig) -> Plan:
        return plan(
            config,
            devices=planned.devices,
            memory_gb=planned.memory_gb,
            speed=planned.duration.speed if planned.duration else NOMINAL,
            kind=planned.kind,
            pipeline=planned.pipeline,
            prompts=planned.prompts,
        )

    def change(self, values: Values, harmless: bool) -> Change:
        """Plan the run with these values."""
        variant = self._again(self.base, self.base.config.model_copy(update=dict(values)))
        assert variant.duration is not None
        peak = variant.footprint.highest()
        extra = variant.duration.total / self.seconds - 1
        return Change(values, harmless, peak, self.peak - peak, extra, peak <= self.limit)

    def excess(self, values: Values) -> float:
        """Bytes over the limit, summed over phases: what a combination must bring to nothing."""
        variant = self._again(self.base, self.base.config.model_copy(update=dict(values)))
        return sum(max(0.0, peak - self.limit) for peak in variant.footprint.peaks().values())

    def steps(self, lever: Lever, values: Values) -> Iterator[Values]:
        """Ever larger steps of one lever from a configuration on."""
        config = self.base.config.model_copy(update=dict(values))
        for _ in range(STEPS):
            step = lever.next(config)
            if step is None:
                return
            values = {**values, **step}
            config = config.model_copy(update=dict(step))
            yield values


def advise(planned: Plan) -> Advice:
    """Advice for a plan whose memory is known; without changes if it fits."""
    if planned.fits is not False:
        return Advice((), None)
    search = _Search(planned)
    singles = [change for lever in search.levers if (change := _single(search, lever))]
    return Advice(tuple(sorted(singles, key=_rank)), _combination(search))


def _rank(change: Change) -> tuple[bool, float, bool, float]:
    """What keeps the result comes first, then what costs the least time; saving time is no merit of its own."""
    return not change.harmless, round(max(0.0, change.extra_time), 4), not change.fits, -change.saves


def _single(search: _Search, lever: Lever) -> Change | None:
    """The smallest step of a lever that fits; else the smallest of those that save the most, if it is worth telling."""
    best: Change | None = None
    least = WORTH_TELLING * search.peak
    for values in search.steps(lever, {}):
        change = search.change(values, lever.harmless)
        if change.fits:
            return change
        if change.saves > (best.saves * 1.001 if best else least):
            best = change
    return best


def _combination(search: _Search) -> Change | None:
    """Step by step the cheapest change that lowers a phase over the limit; those that alter the result come last."""
    values: Values = {}
    harmless = True
    for wanted in (True, False):
        levers = [lever for lever in search.levers if lever.harmless == wanted]
        while (over := search.excess(values)) > 0:
            found = [
                (search.change(step, wanted).extra_time, search.excess(step), step)
                for lever in levers
                if (step := next(search.steps(lever, values), None))
            ]
            useful = [entry for entry in found if entry[1] < over - 1e6]
            if not useful:
                break
            values = min(useful, key=lambda entry: (round(max(0.0, entry[0]), 4), entry[1]))[2]
            harmless = wanted
    if search.excess(values) > 0:
        return None
    return search.change(_pruned(search, values), harmless)


def _pruned(search: _Search, values: Values) -> Values:
    """Without what turned out to be needless."""
    kept = dict(values)
    for key in list(values):
        fewer = {name: value for name, value in kept.items() if name != key}
        if search.excess(fewer) == 0:
            kept = fewer
    return kept
