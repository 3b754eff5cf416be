"""Values as bytes between the processes of a run: JSON and safetensors, so that nothing received can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

_TENSOR, _BYTES = "$tensor", "$bytes"


def encode(value: Any) -> bytes:
    """A value of None, bool, int, float, str, bytes, tensors, lists and mappings with text keys, nested at will.

    Tuples arrive as lists, tensors on the CPU. Raises TypeError for anything else.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _fold(value, tensors)
    data: bytes = save(tensors, {"value": json.dumps(tree)})
    return data


def _fold(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: _keep(torch.frombuffer(bytearray(value), dtype=torch.uint8) if value else _EMPTY, tensors)}
    if isinstance(value, torch.Tensor):
        return {_TENSOR: _keep(value, tensors)}
    if isinstance(value, list | tuple):
        return [_fold(item, tensors) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _fold(item, tensors) for key, item in value.items()}
    raise TypeError(f"expected plain values and tensors to send to other processes, got {type(value).__name__}")


_EMPTY = torch.empty(0, dtype=torch.uint8)


def _keep(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor.detach().cpu().contiguous().clone()  # safetensors takes no two views of one memory
    return name


def decode(data: bytes) -> Any:
    """The value of `encode`; ValueError for bytes that are none."""
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["value"])
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"what came from another process is not a value: {error}") from error
    return _unfold(tree, tensors)


def _unfold(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(tree, list):
        return [_unfold(item, tensors) for item in tree]
    if isinstance(tree, dict):
        if _TENSOR in tree:
            return tensors[tree[_TENSOR]]
        if _BYTES in tree:
            return tensors[tree[_BYTES]].numpy().tobytes()
        return {key: _unfold(item, tensors) for key, item in tree.items()}
    return tree
