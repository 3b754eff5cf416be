"""Checks before money is spent, and while it is: findings are sentences, with what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def adapter_problem(weights: Mapping[str, torch.Tensor]) -> str | None:
    """What is wrong with trained weights, or None: no tensors, a value that is not finite, or nothing but zeros.

    A LoRA whose B matrices (names holding `lora_B`) are all zero changes nothing either, whatever its A matrices hold.
    """
    if not weights:
        return "the adapter holds no weights; train at least one update and choose that checkpoint"
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            return f"the adapter's weight {name!r} holds values that are not finite; choose an earlier checkpoint"
    effective = {name: tensor for name, tensor in weights.items() if "lora_B" in name} or weights
    if not any(bool(tensor.any()) for tensor in effective.values()):
        return (
            f"the adapter changes nothing: all {len(effective)} of its effective weight tensors are zero; "
            "train at least one update, or choose another checkpoint"
        )
    return None
