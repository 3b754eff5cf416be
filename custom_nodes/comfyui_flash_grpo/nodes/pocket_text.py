"""Pocket text encode: a prompt for the built-in pocket model."""

from __future__ import annotations

from pathlib import Path

from comfy_api.latest import io

from ..logic.pocket_encoder import PocketEncoder, conditioning, load_encoder
from ..logic.problem import Problem, plain
from . import places
from .types import CATEGORY

NONE = "no text encoder found: run flash-grpo comfyui export-pocket"
_loaded: dict[tuple[str, int], PocketEncoder] = {}
"""The encoder that was used last, by its file; it takes 4 MB."""


class PocketTextEncode(io.ComfyNode):
    """Encode a caption of the pocket world."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoPocketTextEncode",
            display_name="Pocket text encode",
            category=CATEGORY,
            description="Encodes a caption of the pocket world for the built-in pocket model.",
            inputs=[
                io.Combo.Input("text_encoder", options=places.text_encoders() or [NONE]),
                io.String.Input("text", multiline=True, default="a purple circle moving down on a gray background"),
            ],
            outputs=[io.Conditioning.Output()],
        )

    @classmethod
    def execute(cls, text_encoder: str, text: str) -> io.NodeOutput:
        """Encode the text; words the model does not know are told on the node."""
        if text_encoder == NONE:
            raise Problem("the pocket model's text encoder is not in models/text_encoders; export it and press R")
        encoder = _encoder(places.text_encoder_path(text_encoder))
        strange = encoder.unknown(text)
        told = f"words the model does not know: {plain(', '.join(strange))}" if strange else ""
        return io.NodeOutput(conditioning(encoder.encode(text)), ui={"text": [told]})


def _encoder(file: Path) -> PocketEncoder:
    try:
        key = (str(file), file.stat().st_mtime_ns)
    except OSError as error:
        raise Problem(f"cannot read the text encoder {plain(file.name)}; press R and choose another one") from error
    if key not in _loaded:
        encoder = load_encoder(file)
        _loaded.clear()
        _loaded[key] = encoder
    return _loaded[key]
