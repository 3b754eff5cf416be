"""How fast a device runs the networks: given, measured here, or assumed. Imports no torch before it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import yaml

from flash_grpo.errors import InputError, unknown_name

if TYPE_CHECKING:
    from flash_grpo.config import RunConfig
    from flash_grpo.planning.architecture import Pipeline

TERA = 1e12
REACHED = {"bfloat16": 0.4, "float32": 0.5}
"""Assumed share of a GPU's peak that the denoiser reaches."""
DECODER_SHARE = 0.3
"""Assumed speed of the autoencoder, which runs in float32, over that of the denoiser."""
CPU_CORE = 0.03
"""Assumed speed of a CPU core in TFLOP/s."""


Basis = Literal["assumed", "given", "measured", "earlier"]
SURE: Mapping[Basis, float] = {"assumed": 3.0, "given": 1.5, "measured": 1.5, "earlier": 1.25}
"""By how much a run may be faster or slower than planned, as a factor, by what its speed rests on."""


@dataclass(frozen=True)
class Speed:
    """Effective speeds in FLOP/s of denoiser and autoencoder, where they come from, and what they rest on."""

    denoiser: float
    decoder: float
    source: str
    basis: Basis


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet: memory in GB, peak dense speeds in TFLOP/s by precision."""

    memory: float
    bfloat16: float
    float32: float


@lru_cache(maxsize=1)
def gpus() -> Mapping[str, Gpu]:
    """The GPUs known by name."""
    text = (resources.files("flash_grpo.planning") / "data" / "gpus.yaml").read_text(encoding="utf-8")
    return {name: Gpu(**entry) for name, entry in yaml.safe_load(text).items()}


def gpu_named(name: str) -> Gpu:
    """A GPU by name, in any case; InputError suggests the nearest names."""
    for known, gpu in gpus().items():
        if known.casefold() == name.casefold():
            return gpu
    raise unknown_name("GPU", name, gpus())


def assumed_speed(name: str, dtype: str) -> Speed:
    """What a GPU is assumed to reach."""
    peak = getattr(gpu_named(name), dtype)
    denoiser = peak * TERA * REACHED[dtype]
    return Speed(denoiser, denoiser * DECODER_SHARE, f"assumed for {name}: {REACHED[dtype]:.0%} of its peak", "assumed")


def cpu_speed(threads: int) -> Speed:
    """What CPU threads are assumed to reach."""
    speed = threads * CPU_CORE * TERA
    return Speed(speed, speed, f"assumed: {CPU_CORE} TFLOP/s on each of {threads} CPU threads", "assumed")


def speed_named(text: str, config: RunConfig, pipeline: Pipeline) -> Speed:
    """Read `--speed`: a number in TFLOP/s, or `measure` to time this machine."""
    if text == "measure":
        from flash_grpo.planning.calibrate import measured_speed

        return measured_speed(config, pipeline)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise InputError(f"expected a speed in TFLOP/s such as 200, or `measure`, got {text!r}")
    return Speed(value * TERA, value * TERA * DECODER_SHARE, f"given: {value:g} TFLOP/s", "given")


def as_json(speed: Speed) -> dict[str, Any]:
    """For the plan's JSON, in TFLOP/s."""
    return {
        "denoiser_tflops": speed.denoiser / TERA,
        "decoder_tflops": speed.decoder / TERA,
        "source": speed.source,
        "basis": speed.basis,
    }
