"""Optimiser, learning-rate course and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from flash_grpo.config import RunConfig


def build_optimizer(config: RunConfig, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW or plain SGD over the trained parameters."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )


def learning_rate(config: RunConfig, update: int) -> float:
    """Rate of one update (counted from 0): linear warm-up, then constant or a cosine down to a tenth."""
    warm = min(1.0, (update + 1) / (config.warmup_updates + 1))
    if config.learning_rate_schedule == "constant":
        return config.learning_rate * warm
    course = min(1.0, update / config.updates)
    return config.learning_rate * warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * course)))


class WeightAverage:
    """Exponential moving average of the trained weights, decay min((1 + s) / (10 + s), decay) at step s."""

    def __init__(self, named: Mapping[str, torch.Tensor], decay: float) -> None:
        self.decay = decay
        self.weights = {name: tensor.detach().clone() for name, tensor in named.items()}

    @torch.no_grad()
    def step(self, named: Mapping[str, torch.Tensor], count: int) -> None:
        """Move the average towards the present weights; `count` is the number of earlier steps."""
        decay = min((1 + count) / (10 + count), self.decay)
        for name, average in self.weights.items():
            average.lerp_(named[name], 1 - decay)

    @contextmanager
    def swapped_in(self, named: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Within this context the model carries the averaged weights."""
        with torch.no_grad():
            kept = {name: tensor.detach().clone() for name, tensor in named.items()}
            for name, tensor in named.items():
                tensor.copy_(self.weights[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, tensor in named.items():
                    tensor.copy_(kept[name])
