"""The only file that knows accelerate: processes, devices, gradient synchronisation, trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.models.base import VideoModel
from flash_grpo.models.registry import resolve_device


class Runtime:
    """This process's place among the run's processes."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        wanted = resolve_device(config.device)
        self.accelerator = Accelerator(
            cpu=wanted.type == "cpu",
            log_with=list(config.trackers) or None,
            project_dir=str(folder / "trackers") if config.trackers else None,
        )
        self.rank: int = self.accelerator.process_index
        self.world: int = self.accelerator.num_processes
        self.is_main: bool = self.accelerator.is_main_process
        self.device = wanted if self.world == 1 else self.accelerator.device
        if config.prompts_per_update % self.world:
            raise InputError(
                f"prompts_per_update {config.prompts_per_update} does not divide among {self.world} processes; "
                f"use a multiple of {self.world}"
            )
        if config.trackers and self.is_main:
            self.accelerator.init_trackers("flash-grpo", config={k: str(v) for k, v in config.model_dump().items()})

    def prepare(self, model: VideoModel, optimizer: torch.optim.Optimizer) -> Any:
        """Wrap network and optimiser for gradient synchronisation; alone, nothing is wrapped."""
        if self.world == 1:
            return optimizer
        model.network, prepared = self.accelerator.prepare(model.denoiser, optimizer)
        return prepared

    def own_groups(self, groups: int) -> range:
        """Indices of this process's groups: a contiguous share of the update's global order."""
        share = groups // self.world
        return range(self.rank * share, (self.rank + 1) * share)

    def backward(self, loss: torch.Tensor) -> None:
        """Backward; gradients are averaged over processes, so the loss is scaled to make the average a sum."""
        self.accelerator.backward(loss * self.world)

    def clip_gradients(self, parameters: Sequence[torch.nn.Parameter], max_norm: float) -> float:
        """Clip the gradient norm in place and return the norm before clipping."""
        return float(self.accelerator.clip_grad_norm_(list(parameters), max_norm))

    def gather(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Concatenate each tensor [groups of this process, K] over processes, in global group order."""
        if self.world == 1:
            return dict(values)
        return {name: self.accelerator.gather(v.to(self.device)).cpu() for name, v in values.items()}

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Send numbers to the trackers, if any."""
        if self.accelerator.trackers:
            self.accelerator.log(dict(values), step=update)

    def close(self) -> None:
        """End trackers and process group."""
        self.accelerator.end_training()
