"""The only file that knows accelerate: processes, devices, gradient synchronisation, trackers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.models.base import VideoModel
from flash_grpo.models.registry import resolve_device

Value = TypeVar("Value")

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 2**22


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

    def broadcast(self, value: Value) -> Value:
        """The main process's value, on every process; any picklable Python value. Alone: the value itself."""
        if self.world == 1:
            return value
        box = [value]
        broadcast_object_list(box)
        return box[0]

    def barrier(self) -> None:
        """Wait until every process has come here. Alone: nothing."""
        if self.world > 1:
            self.accelerator.wait_for_everyone()

    def same_everywhere(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether the tensors are equal bit for bit on all processes; every process gets the same answer."""
        if self.world == 1:
            return True
        digest = torch.frombuffer(bytearray(fingerprint(tensors)), dtype=torch.int64).to(self.device)
        rows = self.accelerator.gather(digest).view(self.world, -1)
        return bool((rows == rows[0]).all())

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Send numbers to the trackers, if any."""
        if self.accelerator.trackers:
            self.accelerator.log(dict(values), step=update)

    def close(self) -> None:
        """End trackers and process group."""
        self.accelerator.end_training()


@torch.no_grad()
def fingerprint(tensors: Iterable[torch.Tensor]) -> bytes:
    """32 bytes that change with any bit, place or shape of the tensors; summed where they are, little is moved."""
    digest = hashlib.sha256()
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
        total = torch.zeros((), dtype=torch.int64, device=tensor.device)
        for first in range(0, len(bits), _CHUNK):
            part = bits[first : first + _CHUNK].long()
            # Odd factors: one flipped bit moves the sum (modulo 2**64) wherever it is, and so does a swap.
            total += (part * (2 * torch.arange(first, first + len(part), device=tensor.device) + 1)).sum()
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} {int(total)};".encode())
    return digest.digest()
