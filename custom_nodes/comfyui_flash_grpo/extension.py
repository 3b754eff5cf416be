"""What this pack adds to ComfyUI."""

from __future__ import annotations

from comfy_api.latest import ComfyExtension, io

from .nodes.compare_videos import CompareVideos
from .nodes.job_status import JobStatus
from .nodes.launch_job import LaunchJob
from .nodes.load_checkpoint import LoadAlignedCheckpoint
from .nodes.pick_checkpoints import PickCheckpoints
from .nodes.pocket_text import PocketTextEncode
from .nodes.sample_pair import SamplePair
from .nodes.score_video import ScoreVideo


class FlashGrpoExtension(ComfyExtension):
    """The nodes of Flash-GRPO."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All of them."""
        return [
            LoadAlignedCheckpoint,
            PickCheckpoints,
            SamplePair,
            CompareVideos,
            ScoreVideo,
            PocketTextEncode,
            LaunchJob,
            JobStatus,
        ]
