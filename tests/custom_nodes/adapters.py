"""Adapter files for tests: a small native Wan model's shapes, LoRA for all its linear layers, under any names."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from flash_grpo.native import diffusers_name

RANK = 4
DIM = 256


def linear_layers(blocks: int = 2, image: bool = False, channels: int = 16) -> dict[str, tuple[int, ...]]:
    """Native names and weight shapes of the layers a LoRA can have."""
    found: dict[str, tuple[int, ...]] = {
        "patch_embedding": (DIM, channels, 1, 2, 2),
        "text_embedding.0": (DIM, 4096),
        "text_embedding.2": (DIM, DIM),
        "time_embedding.0": (DIM, 256),
        "time_embedding.2": (DIM, DIM),
        "time_projection.1": (6 * DIM, DIM),
        "head.head": (64, DIM),
    }
    for block in range(blocks):
        for part in ("self_attn", "cross_attn"):
            found |= {f"blocks.{block}.{part}.{layer}": (DIM, DIM) for layer in "qkvo"}
        found |= {f"blocks.{block}.ffn.0": (2 * DIM, DIM), f"blocks.{block}.ffn.2": (DIM, 2 * DIM)}
        if image:
            found |= {f"blocks.{block}.cross_attn.{layer}_img": (DIM, DIM) for layer in "kv"}
    return found | ({"img_emb.proj.1": (1280, 1280), "img_emb.proj.3": (DIM, 1280)} if image else {})


def model_shapes(layers: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """A model as the loader sees it, which has more than linear layers."""
    norms = {f"blocks.{block}.norm3": (DIM,) for block in range(2)}
    return {**layers, **norms, "head.modulation": (1, 2, DIM), "blocks.0.modulation": (1, 6, DIM)}


def lora(layers: Mapping[str, tuple[int, ...]], rank: int = RANK) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Random A and B for each layer."""
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> torch.Tensor:
        return 0.02 * torch.randn(shape, generator=generator)

    pairs = {}
    for name, (out, *rest) in layers.items():
        ones = [1] * (len(rest) - 1)
        pairs[name] = (draw(rank, *rest), draw(out, rank, *ones))
    return pairs


NAMINGS = {
    "native": "diffusion_model.{native}.lora_{part}.weight",
    "diffusers": "transformer.{diffusers}.lora_{part}.weight",
    "peft": "base_model.model.{diffusers}.lora_{part}.weight",
    "bare": "{native}.lora_{part}.weight",
    "kohya": "diffusion_model.{native}.lora_{way}.weight",
}


def named(pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]], naming: str) -> dict[str, torch.Tensor]:
    """The matrices under one of the ways that files name them."""
    form = NAMINGS[naming]
    tensors = {}
    for name, pair in pairs.items():
        for part, way, tensor in zip("AB", ("down", "up"), pair, strict=True):
            key = form.format(native=name, diffusers=diffusers_name(name), part=part, way=way)
            tensors[key] = tensor.contiguous()
    return tensors


def write(file: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> Path:
    """Write a safetensors file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), file, metadata=dict(metadata or {}))
    return file


def write_raw(file: Path, header: Any, body: bytes = b"") -> Path:
    """Write a file whose header may be anything."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(content)) + content + body)
    return file
