"""Checkpoint picker: several checkpoints of one run, for a sweep."""

from __future__ import annotations

from collections.abc import Iterator

from comfy_api.latest import io

from ..logic.adapter_file import read_header
from ..logic.facts import Facts, read_facts
from ..logic.problem import Problem
from ..logic.sweep import chosen
from . import checkpoints, places
from .types import CATEGORY, Checkpoint

NONE = "no run found: put its exported adapters into models/loras"


class PickCheckpoints(io.ComfyNode):
    """Hand on one checkpoint after the other; what follows runs once for each."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        runs = sorted({facts.run for _, facts in _candidates() if facts.run and facts.update is not None})
        return io.Schema(
            node_id="FlashGrpoPickCheckpoints",
            display_name="Checkpoint picker",
            category=CATEGORY,
            description="Takes several checkpoints of one run; all that follows runs once for each of them.",
            inputs=[
                io.Combo.Input("run", options=runs or [NONE]),
                io.String.Input("updates", default="all", tooltip="all, or numbers such as 20, 40."),
            ],
            outputs=[
                Checkpoint.Output("checkpoints", is_output_list=True),
                io.String.Output("labels", is_output_list=True),
            ],
        )

    @classmethod
    def validate_inputs(cls, run: str) -> bool | str:
        """Whether a run may be queued; the list may have changed since the page was loaded."""
        return True if isinstance(run, str) else "expected the name of a run"

    @classmethod
    def fingerprint_inputs(cls, run: str, updates: str) -> str:
        """Changes when a checkpoint of the run does."""
        del updates
        return "\n".join(checkpoints.fingerprint(name) for name, facts in _candidates() if facts.run == run)

    @classmethod
    def execute(cls, run: str, updates: str) -> io.NodeOutput:
        """The chosen checkpoints, by update."""
        if run == NONE:
            raise Problem("there is no run to pick from; put its exported adapters into models/loras and press R")
        found = chosen(_candidates(), run, updates)
        labels = [f"update {facts.update}" for _, facts in found]
        return io.NodeOutput([name for name, _ in found], labels, ui={"text": [", ".join(labels)]})


def _candidates() -> Iterator[tuple[str, Facts]]:
    """Adapters in ComfyUI's folders that can be read; only their headers are."""
    for name in places.adapters():
        try:
            file = places.adapter_path(name)
            yield name, read_facts(file.name, read_header(file).metadata)
        except Problem:
            continue
