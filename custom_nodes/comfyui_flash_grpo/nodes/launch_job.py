"""Launch alignment job: queue a training in the studio."""

from __future__ import annotations

from comfy_api.latest import io

from ..logic import studio_jobs
from ..logic.studio import Studio
from ..logic.studio_settings import needed
from . import places
from .types import CATEGORY


class LaunchJob(io.ComfyNode):
    """Ask the studio to align a model."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoLaunchJob",
            display_name="Launch alignment job",
            category=CATEGORY,
            description="Queues a training in the configured studio. Queueing the graph again launches nothing new.",
            is_output_node=True,
            inputs=[
                io.String.Input("preset", default="pocket"),
                io.String.Input("name", default=""),
                io.String.Input("prompts", multiline=True, default="", tooltip="One a line; empty takes the preset's."),
                io.String.Input("changes", multiline=True, default="", tooltip="Lines such as updates = 40."),
                io.Int.Input("launch", default=1, min=1, max=10**6, tooltip="Raise it to launch the same job again."),
            ],
            outputs=[io.String.Output("job"), io.String.Output("text")],
        )

    @classmethod
    def execute(cls, preset: str, name: str, prompts: str, changes: str, launch: int) -> io.NodeOutput:
        """Queue the job, or find the one these inputs made before."""
        studio = Studio(needed(places.private_folder()))
        standing = studio_jobs.launch(studio, preset, name, prompts, changes, launch)
        return io.NodeOutput(standing.id, standing.text, ui={"text": [standing.text]})
