"""A run opened for measuring: a trainer in a temporary folder, at frozen weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from flash_grpo.attempt import open_run
from flash_grpo.config import RunConfig, build_config, parse_assignments
from flash_grpo.trainer import Trainer


def configuration(preset: str, assignments: list[str]) -> RunConfig:
    """A preset with `key=value` overrides, as on the command line."""
    return build_config(preset, parse_assignments(assignments))


@contextmanager
def frozen_trainer(config: RunConfig) -> Iterator[Trainer]:
    """A trainer whose weights nobody updates, its run folder thrown away afterwards."""
    with tempfile.TemporaryDirectory() as folder, open_run(config, Path(folder) / "run", None, ()) as run:
        yield Trainer(run)


def flat_gradient(trainer: Trainer) -> torch.Tensor:
    """All gradients of the trained parameters in one float64 vector."""
    parts = [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in trainer.named.values()]
    return torch.cat(parts).double().cpu()
