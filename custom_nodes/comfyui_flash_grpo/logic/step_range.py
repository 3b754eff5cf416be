"""An adapter that acts in some of the denoising steps only, by adding to the layers' outputs while those run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from .problem import Problem

STEPS = ("all", "early", "late")


def active(steps: str, boundary: float, sigma: float, sigmas: list[float]) -> bool:
    """Whether the adapter acts at `sigma`, a noise level of the schedule `sigmas` (falling, its end included).

    Early steps are the first `boundary` share of them, rounded; late ones the others.
    """
    count = max(1, len(sigmas) - 1)
    distances = [abs(level - sigma) for level in sigmas[:count]] or [0.0]
    step = distances.index(min(distances))
    early = step < round(boundary * count)
    return steps == "all" or early == (steps == "early")


class Delta:
    """B @ A times a scale for each adapted layer, kept on the device that last used it."""

    def __init__(self, pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._pairs = dict(pairs)

    @contextmanager
    def added(self, network: torch.nn.Module) -> Iterator[None]:
        """While this context lasts, the layers' outputs hold what the adapter adds."""
        handles = []
        try:
            for name in self._pairs:
                layer = network.get_submodule(name)
                if not hasattr(layer, "in_features"):
                    raise Problem(f"{name} is no linear layer, so it cannot be limited to some steps; set steps to all")
                handles.append(layer.register_forward_hook(self._hook(name)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Any:
        def add(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            del module
            a, b = self._on(name, output)
            return output + F.linear(F.linear(inputs[0].to(output.dtype), a), b)

        return add

    def _on(self, name: str, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self._pairs[name]
        if a.device != like.device or a.dtype != like.dtype:
            a, b = a.to(like.device, like.dtype), b.to(like.device, like.dtype)
            self._pairs[name] = (a, b)
        return a, b
