"""Judgement by a vision-language model behind any OpenAI-compatible endpoint (vLLM, SGLang and others)."""

from __future__ import annotations

import base64
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.judge.endpoint import Judge, find_address
from flash_grpo.rewards.judge.limits import Budget, Pace

JPEG_QUALITY = 90


class VlmJudge:
    """The judge's score for the rubric, 0..1 in steps of a tenth; each video is a question of its own.

    `frames` frames spread over the video are sent, none larger than `side` pixels. `budget` (0: without limit) counts
    for one process and from its start. The key comes from FLASH_GRPO_JUDGE_KEY and goes only to the server that
    FLASH_GRPO_JUDGE_SERVER names. Raises InputError for options out of range, RuntimeError when no verdict comes.
    """

    groupwise = False

    def __init__(
        self,
        server: str = "",
        model: str = "",
        rubric: str = "",
        frames: int = 8,
        side: int = 512,
        parallel: int = 4,
        seconds: float = 60.0,
        retries: int = 4,
        per_minute: float = 0.0,
        budget: float = 0.0,
        price_in: float = 0.0,
        price_out: float = 0.0,
    ) -> None:
        numbers = (seconds, per_minute, budget, price_in, price_out)
        if not (1 <= frames <= 64 and 28 <= side <= 2048 and 1 <= parallel <= 256 and 0 <= retries <= 20):
            raise InputError(
                f"vlm_judge expects frames 1..64, side 28..2048, parallel 1..256 and retries 0..20, got {frames}, "
                f"{side}, {parallel} and {retries}"
            )
        if seconds <= 0 or not all(0 <= number < float("inf") for number in numbers):
            raise InputError(
                "vlm_judge expects seconds above 0 and per_minute, budget, price_in and price_out from 0 on, got "
                f"{seconds}, {per_minute}, {budget}, {price_in} and {price_out}"
            )
        if budget and not price_in and not price_out:
            raise InputError(
                "vlm_judge has a budget but no prices to count with; set price_in and price_out, per million tokens"
            )
        self._frames, self._side, self._parallel = frames, side, parallel
        spending = Budget(budget, price_in, price_out)
        self._judge = Judge(find_address(server, model), rubric, seconds, retries, Pace(per_minute), spending)

    @property
    def spent(self) -> float:
        """What the questions cost so far, in the currency of the prices."""
        return self._judge.budget.spent

    def score(self, videos: VideoBatch) -> torch.Tensor:
        stop = threading.Event()

        def ask(index: int) -> float:
            try:
                return self._judge.ask(videos.prompts[index], self._pictures(videos.frames[index]), stop)
            except BaseException:
                stop.set()  # the scores are worth nothing without this one: ask and pay no further
                raise

        with ThreadPoolExecutor(self._parallel, "vlm_judge") as pool:
            answers = [pool.submit(ask, index) for index in range(len(videos))]
        failures = [error for answer in answers if (error := answer.exception()) is not None]
        if failures:  # a video that was not asked for any more is no cause
            raise next((error for error in failures if "another video" not in str(error)), failures[0])
        return torch.tensor([answer.result() for answer in answers], dtype=torch.float32)

    def _pictures(self, clip: torch.Tensor) -> list[str]:
        """Data URLs of the chosen frames of one video [F, 3, H, W]."""
        if not len(clip):
            raise InputError("reward 'vlm_judge' got a video without frames; pass at least one frame")
        chosen = np.unique(np.linspace(0, len(clip) - 1, min(self._frames, len(clip))).round().astype(int))
        return [_data_url(clip[int(index)], self._side) for index in chosen]


def _data_url(frame: torch.Tensor, side: int) -> str:
    """One frame [3, H, W] in 0..1 as a JPEG of at most `side` pixels."""
    pixels = (frame.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=JPEG_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
