"""Score video: rewards of a video, here where they need only torch, else by the studio."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comfy.model_management import throw_exception_if_processing_interrupted
from comfy_api.latest import io

from ..logic.facts import Facts
from ..logic.frames import Clip, as_bytes, fit
from ..logic.problem import plain
from ..logic.scoring import HERE, names_of, options_of, score_here
from ..logic.studio import Studio
from ..logic.studio_jobs import Standing, score
from ..logic.studio_settings import needed
from ..shared.video import write_mp4
from . import places
from .compare_videos import clip_of
from .types import CATEGORY, FactsType, Scores

SECONDS = 600.0
"""How long a studio may take to score one video."""


class ScoreVideo(io.ComfyNode):
    """Judge a video by rewards."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoScoreVideo",
            display_name="Score video",
            category=CATEGORY,
            description=f"Gives {', '.join(HERE)} by itself and asks the studio for any other reward.",
            inputs=[
                io.MultiType.Input("video", [io.Video, io.Image]),
                io.Float.Input("fps", default=16.0, min=0.1, max=240.0, step=0.1),
                io.String.Input("prompt", multiline=True, default=""),
                io.String.Input("rewards", default="colorfulness, sharpness, flicker"),
                io.String.Input("options", default="", tooltip='JSON such as {"subject_size": {"low": 0.2}}.'),
                FactsType.Input("facts", optional=True, tooltip="Takes the options of the checkpoint's own run."),
            ],
            outputs=[Scores.Output("scores"), io.String.Output("text")],
        )

    @classmethod
    def execute(
        cls, video: Any, fps: float, prompt: str, rewards: str, options: str, facts: Facts | None = None
    ) -> io.NodeOutput:
        """Score with every named reward."""
        clip = clip_of(video, fps)
        names = names_of(rewards)
        chosen = {**(facts.reward_options if facts else {}), **options_of(options)}
        scores = score_here([name for name in names if name in HERE], clip.frames, clip.fps, prompt, chosen)
        elsewhere = [name for name in names if name not in HERE]
        if elsewhere:
            scores |= _score_by_studio(clip, elsewhere, prompt, chosen)
        text = "\n".join(f"{plain(name, 60)}: {scores[name]:.4f}" for name in names)
        return io.NodeOutput(scores, text, ui={"text": [text]})


def _score_by_studio(clip: Clip, names: Sequence[str], prompt: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Send the video to the studio and wait for its scores."""
    studio = Studio(needed(places.private_folder()))
    height, width = clip.frames.shape[1:3]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "comfyui.mp4"
        write_mp4(file, as_bytes(fit(clip.frames[..., :3], height + height % 2, width + width % 2)), clip.fps)
        return score(studio, file, names, options, prompt, SECONDS, _interruptible)


def _interruptible(standing: Standing) -> None:
    del standing
    throw_exception_if_processing_interrupted()
