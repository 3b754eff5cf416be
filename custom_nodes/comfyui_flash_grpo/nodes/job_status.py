"""Job status: how far a job of the studio is, once or until it ends."""

from __future__ import annotations

import time

import comfy.utils
from comfy.model_management import throw_exception_if_processing_interrupted
from comfy_api.latest import io

from ..logic import studio_jobs
from ..logic.studio import Studio
from ..logic.studio_jobs import Standing
from ..logic.studio_settings import needed
from . import places
from .routes import tell_progress
from .types import CATEGORY


class JobStatus(io.ComfyNode):
    """Look at a job of the studio."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoJobStatus",
            display_name="Job status",
            category=CATEGORY,
            description="Tells how far a job of the studio is; with minutes to wait, the graph waits for its end.",
            is_output_node=True,
            inputs=[
                io.String.Input("job", default="", tooltip="A job's id, from Launch alignment job or the studio."),
                io.Float.Input("wait_minutes", default=0.0, min=0.0, max=10_000.0, step=1.0),
            ],
            outputs=[io.String.Output("state"), io.Boolean.Output("ended"), io.String.Output("text")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def fingerprint_inputs(cls, job: str, wait_minutes: float) -> float:
        """A job moves on by itself, so the node looks each time."""
        del job, wait_minutes
        return time.time()

    @classmethod
    def execute(cls, job: str, wait_minutes: float) -> io.NodeOutput:
        """Look, and wait if asked; the wait can be interrupted."""
        bar = comfy.utils.ProgressBar(1)

        def looked(standing: Standing) -> None:
            throw_exception_if_processing_interrupted()
            tell_progress(cls.hidden.unique_id, standing.text, standing.done, standing.total)
            if standing.total:
                bar.update_absolute(standing.done, standing.total)

        studio = Studio(needed(places.private_folder()))
        standing = studio_jobs.wait(studio, job, 60 * wait_minutes, looked)
        return io.NodeOutput(standing.state, standing.ended, standing.text, ui={"text": [standing.text]})
