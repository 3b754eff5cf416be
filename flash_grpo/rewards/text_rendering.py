"""Text rendering: whether the words asked for can be read in the frames."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch

SHORT_SIDE = 192  # smaller frames are enlarged to this; below it the reader misses text

# Single quotes count only where they are not apostrophes.
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)|‘([^’]+)’(?!\w)")


class TextRendering:
    """1 minus the edit distance between the text read and the text asked for, over the longer of the two.

    The text is `metadata["text"]` or what stands in quotes in the prompt; capitals, spaces and punctuation do not
    count. Mean over `frames` frames spread over the video. Raises InputError for prompts that ask for no text.
    """

    groupwise = False

    def __init__(self, frames: int = 3, threads: int = 2) -> None:
        if frames < 1 or threads < 1:
            raise InputError(f"text_rendering expects frames and threads from 1 on, got {frames} and {threads}")
        self.frames = frames
        self._reader = _reader(threads)

    def score(self, videos: VideoBatch) -> torch.Tensor:
        wanted = [_plain(_text(*given)) for given in zip(videos.prompts, videos.metadata, strict=True)]
        count = videos.frames.shape[1]
        chosen = np.unique(np.linspace(0, count - 1, min(self.frames, count) + 2).round()[1:-1].astype(int))
        values = []
        for clip, text in zip(videos.frames, wanted, strict=True):
            read = [_plain(self._read(frame)) for frame in clip[torch.from_numpy(chosen)]]
            values.append(float(np.mean([1 - _distance(r, text) / max(len(r), len(text)) for r in read])))
        return torch.tensor(values, dtype=torch.float32)

    def _read(self, frame: torch.Tensor) -> str:
        """All text in one frame [3, H, W], from top to bottom."""
        scale = SHORT_SIDE / min(frame.shape[-2:])
        if scale > 1:
            larger = torch.nn.functional.interpolate(frame[None], scale_factor=scale, mode="bicubic")
            frame = larger[0]
        pixels = (frame.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).flip(-1)  # BGR
        return " ".join(self._reader(np.ascontiguousarray(pixels.numpy())).txts or ())


def _reader(threads: int) -> Any:
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise InputError(
            "reward 'text_rendering' needs RapidOCR, which is not installed; "
            "run pip install 'flash-grpo-studio[rewards]'"
        ) from error
    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,  # text on its head is not text well rendered
            # The reader would enlarge every frame to 736 pixels, at many times the cost.
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _text(prompt: str, metadata: Mapping[str, object]) -> str:
    """The text a prompt asks for; several quotations are joined."""
    given = metadata.get("text")
    text = str(given) if given else " ".join("".join(found) for found in _QUOTED.findall(prompt))
    if not _plain(text):
        raise InputError(
            f"reward 'text_rendering' finds no text to look for in {prompt!r}; "
            "put it in quotes, or give the prompt a `text`"
        )
    return text


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _distance(first: str, second: str) -> int:
    """Levenshtein distance."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
