"""The pocket model's text encoder: one safetensors file that also holds its configuration and its tokenizer."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .adapter_file import read_header
from .problem import Problem, plain

CONFIG, TOKENIZER, LENGTH = "flash_grpo.text_config", "flash_grpo.tokenizer", "flash_grpo.max_length"


@dataclass(frozen=True)
class PocketEncoder:
    """A tokenizer and an encoder; `length` tokens go in, padded."""

    tokenizer: Any
    network: torch.nn.Module
    length: int

    @torch.no_grad()
    def encode(self, text: str) -> torch.Tensor:
        """A prompt's embedding [1, length, dim], zero behind its end, as diffusers' Wan pipeline makes it."""
        ids = self.ids(text)
        padded = torch.tensor([ids + [0] * (self.length - len(ids))])
        mask = (torch.arange(self.length) < len(ids)).long()[None]
        hidden: torch.Tensor = self.network(padded, mask).last_hidden_state
        return hidden.float() * mask[..., None]

    def ids(self, text: str) -> list[int]:
        """Tokens of a prompt, cut as the model's tokenizer cuts: its end mark is kept."""
        cleaned = " ".join(html.unescape(html.unescape(text)).split())
        ids: list[int] = self.tokenizer.encode(cleaned).ids
        return ids if len(ids) <= self.length else [*ids[: self.length - 1], ids[-1]]

    def unknown(self, text: str) -> list[str]:
        """Words of a prompt that the model does not know."""
        mark = self.tokenizer.token_to_id("<unk>")
        encoded = self.tokenizer.encode(text)
        spans = [span for id_, span in zip(encoded.ids, encoded.offsets, strict=True) if id_ == mark]
        return list(dict.fromkeys(text[start:stop] for start, stop in spans))


def load_encoder(file: Path) -> PocketEncoder:
    """The encoder in a file that `flash-grpo comfyui export-pocket` wrote; Problem if it is another kind of file."""
    metadata = read_header(file).metadata
    missing = [key for key in (CONFIG, TOKENIZER, LENGTH) if key not in metadata]
    if missing:
        raise Problem(
            f"{plain(file.name)} is no text encoder of the pocket model; choose flash-grpo-pocket-text.safetensors, "
            "which `flash-grpo comfyui export-pocket` writes (larger models use Load CLIP)"
        )
    try:
        tokenizer, network = _build(file, metadata)
        return PocketEncoder(tokenizer, network, int(metadata[LENGTH]))
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Problem(f"{plain(file.name)} cannot be read ({plain(error, 100)}); export it again") from error


def _build(file: Path, metadata: Mapping[str, str]) -> tuple[Any, torch.nn.Module]:
    # Only a graph with a pocket model in it pays for these imports.
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import UMT5Config, UMT5EncoderModel

    tokenizer = Tokenizer.from_str(metadata[TOKENIZER])
    with torch.random.fork_rng(devices=[]):
        network = UMT5EncoderModel(UMT5Config(**json.loads(metadata[CONFIG])))
    tensors = {name: tensor.float() for name, tensor in load_file(file).items()}
    shared = tensors.get("shared.weight")
    if shared is not None:
        tensors.setdefault("encoder.embed_tokens.weight", shared)
    network.load_state_dict(tensors)
    return tokenizer, network.eval().requires_grad_(False)


def conditioning(embedding: torch.Tensor) -> Sequence[Any]:
    """An embedding as ComfyUI passes it on."""
    return [[embedding, {}]]
