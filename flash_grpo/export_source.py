"""What an export is made of: a run's configuration, and the verified weights of one of its checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from flash_grpo.checkpoint import PREFIX, choose_checkpoint, load_weights
from flash_grpo.config import RunConfig, load_config
from flash_grpo.doctor import adapter_problem
from flash_grpo.errors import InputError
from flash_grpo.models.folder import base_folder, public_name


@dataclass(frozen=True)
class Source:
    """What is exported: a run's configuration and the weights one checkpoint deploys, named as in the denoiser.

    `base` is the base model's pipeline folder, None if it is not on this machine. `name` is what the run is called.
    """

    run: Path
    update: int
    config: RunConfig
    weights: Mapping[str, torch.Tensor]
    base: Path | None
    name: str

    @property
    def file_name(self) -> str:
        """Name of the adapter's file; it tells the adapters of several runs apart in one folder."""
        return f"{self.name}-{self.update:06d}.safetensors"

    @property
    def autoencoder_name(self) -> str:
        """Name of the base's autoencoder as a native file."""
        return f"{public_name(self.config).rpartition('/')[2]}-vae.safetensors"

    @property
    def scale(self) -> float:
        """What B @ A is multiplied by."""
        return self.config.lora_alpha / self.config.lora_rank

    def layers(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """A [r, in] and B [out, r] of every adapted linear layer; InputError unless they are LoRA of the run's rank."""
        rank = self.config.lora_rank
        names = {re.sub(r"\.lora_[AB]\.weight$", "", name) for name in self.weights}
        pairs = {}
        for name in sorted(names):
            a, b = (self.weights.get(f"{name}.lora_{letter}.weight") for letter in "AB")
            if a is None or b is None or a.shape[0] != rank or b.shape[1] != rank:
                raise InputError(
                    f"expected LoRA matrices of rank {rank} for {name} as config.yaml says, and the checkpoint holds "
                    "others; export the run with the config.yaml it was trained with"
                )
            pairs[name] = (a, b)
        return pairs


def read_source(run: Path, which: str, name: str | None = None) -> Source:
    """Configuration and verified weights of a run's checkpoint; InputError if they cannot or must not be exported."""
    if not (run / "config.yaml").is_file():
        raise InputError(f"{run} is no run folder: it holds no config.yaml; name the folder that train wrote")
    config = load_config(run / "config.yaml")
    checkpoint = choose_checkpoint(run, which)
    weights = {name.removeprefix(PREFIX): tensor for name, tensor in load_weights(checkpoint).items()}
    if problem := adapter_problem(weights):
        raise InputError(f"{checkpoint} is not exported: {problem}")
    return Source(
        run, int(checkpoint.name), config, weights, base_folder(config), _file_safe(name or run.resolve().name)
    )


def _file_safe(name: str) -> str:
    """A name that files may carry everywhere."""
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]+', "-", name).strip(". ")[:100] or "run"
