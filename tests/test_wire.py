"""Values between processes come back as they were, and nothing else gets through."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import pytest
import torch

from flash_grpo.wire import decode, encode


def test_nested_values_come_back() -> None:
    shared = torch.arange(6.0).view(2, 3)
    value = {
        "none": None,
        "numbers": [1, 2.5, True, -(2**60), 1e-300],
        "text": "ünï",
        "bytes": [b"", b"\x00\xff"],
        "tensors": [shared, shared[0], torch.tensor([], dtype=torch.int64), torch.zeros(2, dtype=torch.bfloat16)],
    }
    back = decode(encode(value))
    tensors = back.pop("tensors")
    for sent, received in zip(value.pop("tensors"), tensors, strict=True):  # type: ignore[arg-type]
        assert received.dtype == sent.dtype
        assert torch.equal(received, sent)
    assert back == value
    assert math.isnan(decode(encode(float("nan"))))
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"$tensor": "0"}, {"a": {1, 2}}])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="plain values"):
        encode(value)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    data = pickle.dumps(Trap(tmp_path / "ran"))
    with pytest.raises(ValueError, match="not a value"):
        decode(data)
    assert not (tmp_path / "ran").exists()
    pickle.loads(data)
    assert (tmp_path / "ran").exists(), "the trap itself works"
