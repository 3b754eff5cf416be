"""Compare videos: before and after in one player, and side by side as one file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import folder_paths
from comfy_api.latest import InputImpl, Types, io

from ..logic.comparison import caption, reward_rows, sameness
from ..logic.facts import Facts
from ..logic.frames import Clip, aligned, as_bytes, side_by_side
from ..logic.problem import Problem, plain
from ..shared.video import display_scale, write_mp4
from .types import CATEGORY, FactsType, Scores, Settings

PAIRS = "flash_grpo"
"""Subfolder of ComfyUI's temporary folder that holds what players show."""


class CompareVideos(io.ComfyNode):
    """Show two videos in lock-step."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        videos = [io.Video, io.Image]
        return io.Schema(
            node_id="FlashGrpoCompareVideos",
            display_name="Compare videos",
            category=CATEGORY,
            description="Plays two videos in lock-step and writes them side by side into the output folder.",
            is_output_node=True,
            inputs=[
                io.MultiType.Input("before", videos),
                io.MultiType.Input("after", videos),
                io.Float.Input(
                    "fps", default=16.0, min=0.1, max=240.0, step=0.1, tooltip="Of images; a VIDEO knows its own."
                ),
                io.String.Input("filename_prefix", default="flash_grpo/compare"),
                Scores.Input("before_scores", optional=True),
                Scores.Input("after_scores", optional=True),
                Settings.Input("settings", optional=True),
                FactsType.Input("facts", optional=True),
            ],
            outputs=[io.Video.Output("video"), io.String.Output("text")],
        )

    @classmethod
    def execute(
        cls,
        before: Any,
        after: Any,
        fps: float,
        filename_prefix: str,
        before_scores: Mapping[str, float] | None = None,
        after_scores: Mapping[str, float] | None = None,
        settings: Mapping[str, Any] | None = None,
        facts: Facts | None = None,
    ) -> io.NodeOutput:
        """Write the two videos for the player and their composition for keeps."""
        first, second, notices = aligned(clip_of(before, fps), clip_of(after, fps))
        rows = reward_rows(before_scores, after_scores, facts.optimised if facts else ())
        same = sameness(settings)
        text = caption(rows, same, notices)
        composed = side_by_side(first, second)
        file, subfolder = _output_name(filename_prefix, composed.shape[2], composed.shape[1])
        write_mp4(file, as_bytes(composed), first.fps)
        shown = {
            "before": _temporary(first),
            "after": _temporary(second),
            "composed": {"filename": file.name, "subfolder": subfolder, "type": "output"},
            "fps": first.fps,
            "frames": len(first.frames),
            "rewards": rows,
            "same": same,
            "notices": notices,
            "checkpoint": f"{facts.run}, update {facts.update}" if facts and facts.run else "",
        }
        rate = Fraction(first.fps).limit_denominator(1001)
        video = InputImpl.VideoFromComponents(Types.VideoComponents(images=composed, frame_rate=rate))
        return io.NodeOutput(video, text, ui={"flash_grpo": [json.dumps(shown)], "text": [text]})


def clip_of(value: Any, fps: float) -> Clip:
    """Frames of a VIDEO, or of an IMAGE batch at `fps`; sound is left out."""
    if hasattr(value, "get_components"):
        try:
            parts = value.get_components()
        except (OSError, ValueError, StopIteration) as error:
            raise Problem(f"the video cannot be read ({plain(error, 100)}); load it again") from error
        return Clip(parts.images, float(parts.frame_rate))
    return Clip(value, fps)


def _output_name(prefix: str, width: int, height: int) -> tuple[Path, str]:
    folder, name, counter, subfolder, _ = folder_paths.get_save_image_path(
        prefix, folder_paths.get_output_directory(), width, height
    )
    return Path(folder) / f"{name}_{counter:05}_.mp4", subfolder


def _temporary(clip: Clip) -> dict[str, str]:
    """Write a video where ComfyUI serves and later clears it; small ones enlarged, so that encoding harms them less."""
    name = f"{uuid.uuid4().hex}.mp4"
    scale = display_scale(*clip.frames.shape[1:3])
    write_mp4(Path(folder_paths.get_temp_directory()) / PAIRS / name, as_bytes(clip.frames), clip.fps, scale, "nearest")
    return {"filename": name, "subfolder": PAIRS, "type": "temp"}
