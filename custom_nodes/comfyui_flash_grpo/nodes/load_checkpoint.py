"""Load aligned checkpoint: the base model before, and after with the adapter on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import comfy.lora
import comfy.patcher_extension
import comfy.utils
import torch
from comfy_api.latest import io

from ..logic.adapter_file import Header, read_header
from ..logic.base_check import EXPERTS, check_base, check_expert
from ..logic.facts import describe, read_facts
from ..logic.matching import Match, file_scale, match, scale_of
from ..logic.step_range import STEPS, Delta, active
from . import checkpoints
from .types import CATEGORY, Checkpoint, FactsType

PREFIX = "diffusion_model."


class LoadAlignedCheckpoint(io.ComfyNode):
    """Patch a Wan model with an aligned adapter, and refuse whatever would silently do nothing."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoLoadCheckpoint",
            display_name="Load aligned checkpoint",
            category=CATEGORY,
            description="Puts an aligned adapter on its base model. Fails if any part of the file would do nothing.",
            inputs=[
                io.Model.Input("model", tooltip="The base model, as it was before alignment."),
                io.Combo.Input("checkpoint", options=checkpoints.names(), tooltip="From models/loras or your studio."),
                io.Float.Input("strength", default=1.0, min=-4.0, max=4.0, step=0.05, tooltip="1 is as trained."),
                io.Combo.Input("steps", options=list(STEPS), tooltip="In which denoising steps the adapter acts."),
                io.Float.Input(
                    "boundary", default=0.5, min=0.0, max=1.0, step=0.05, tooltip="Share of the steps that is early."
                ),
                io.Combo.Input("expert", options=list(EXPERTS), tooltip="What the connected model is."),
                io.Boolean.Input(
                    "check_base", default=True, tooltip="Refuse a model with other weights than the adapter's base."
                ),
                Checkpoint.Input("picked", optional=True, tooltip="From a checkpoint picker, instead of `checkpoint`."),
            ],
            outputs=[
                io.Model.Output("before"),
                io.Model.Output("after"),
                io.String.Output("info"),
                FactsType.Output("facts"),
            ],
        )

    @classmethod
    def validate_inputs(cls, checkpoint: str) -> bool | str:
        """Whether a checkpoint may be queued; the list may have changed since the page was loaded."""
        return True if isinstance(checkpoint, str) else "expected the name of a checkpoint"

    @classmethod
    def fingerprint_inputs(cls, checkpoint: str, **others: Any) -> str:
        """Changes when the file does."""
        return checkpoints.fingerprint(others.get("picked") or checkpoint)

    @classmethod
    def execute(
        cls,
        model: Any,
        checkpoint: str,
        strength: float,
        steps: str,
        boundary: float,
        expert: str,
        check_base: bool,
        picked: str | None = None,
    ) -> io.NodeOutput:
        """Check the file against the model, then patch a clone of it."""
        file = checkpoints.path(picked or checkpoint)
        header = read_header(file)
        facts = read_facts(file.name, header.metadata)
        shapes = layer_shapes(model)
        found = match(header, shapes, facts.file)
        found.refuse_unused(facts.file)
        check_expert(facts, expert)
        confirmed = check(model, facts, shapes, check_base)
        pairs, how = read_pairs(file, header, found)
        limited = "all steps" if steps == "all" else f"{steps} steps only ({boundary:g} of them are early)"
        info = [
            *describe(facts),
            confirmed,
            f"matched {len(found.layers)} layers ({sum(3 if layer.alpha else 2 for layer in found.layers.values())} "
            f"keys), unmatched {len(found.untouched)} layers of the model, unused 0 keys",
            f"strength {strength:g}, {limited}; {how}",
        ]
        text = "\n".join(info)
        after = patched(model, pairs, strength, steps, boundary)
        return io.NodeOutput(model, after, text, facts, ui={"text": [text]})


def check(model: Any, facts: Any, shapes: Mapping[str, tuple[int, ...]], strict: bool) -> str:
    """A sentence on whether this is the adapter's base."""
    return check_base(facts, shapes, lambda name, where: _numbers(model, name, where), strict)


def layer_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """A model's weights by native layer name."""
    return {
        key.removeprefix(PREFIX).removesuffix(".weight"): tuple(weight.shape)
        for key, weight in model.model.state_dict().items()
        if key.startswith(PREFIX) and not key.endswith(".bias")
    }


def _numbers(model: Any, name: str, where: Sequence[int]) -> list[float] | None:
    """A weight's numbers as they were loaded, whatever is patched onto it at the moment."""
    key = PREFIX + name
    kept = model.backup.get(key)
    weight = kept.weight if kept is not None else comfy.utils.get_attr(model.model, key)
    try:
        return [float(value) for value in weight.flatten()[torch.tensor(where)].float()]
    except (RuntimeError, TypeError, IndexError, AttributeError, NotImplementedError):
        return None  # stored in a way of its own, such as GGUF


def read_pairs(file: Path, header: Header, found: Match) -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], str]:
    """A and B of every layer, the scale in B, and how the scale was found."""
    default, how = file_scale(header, file)
    tensors = comfy.utils.load_torch_file(str(file), safe_load=True)
    pairs = {}
    for name, layer in found.layers.items():
        alpha = float(tensors[layer.alpha]) if layer.alpha else None
        scale = scale_of(header, layer, alpha, default)
        pairs[name] = (tensors[layer.a], tensors[layer.b] * scale)
    return pairs, how


def patched(
    model: Any, pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]], strength: float, steps: str, boundary: float
) -> Any:
    """A clone of the model with the adapter on its weights, or beside them if it acts in some steps only."""
    after = model.clone()
    if steps == "all":
        keys = {PREFIX + name: f"{PREFIX}{name}.weight" for name in pairs}
        lora = {f"{PREFIX}{name}.lora_A.weight": a for name, (a, _) in pairs.items()}
        lora |= {f"{PREFIX}{name}.lora_B.weight": b for name, (_, b) in pairs.items()}
        done = after.add_patches(comfy.lora.load_lora(lora, keys), strength)
        assert len(done) == len(pairs), "ComfyUI took fewer layers than were matched"
        return after
    delta = Delta({name: (a, b * strength) for name, (a, b) in pairs.items()})

    def forward(executor: Any, *arguments: Any, **named: Any) -> Any:
        options = _options(arguments, named)
        sigmas = [float(sigma) for sigma in options["sample_sigmas"]]
        if not active(steps, boundary, float(options["sigmas"][0]), sigmas):
            return executor(*arguments, **named)
        with delta.added(executor.class_obj):
            return executor(*arguments, **named)

    kind = comfy.patcher_extension.WrappersMP.DIFFUSION_MODEL
    after.add_wrapper_with_key(kind, "flash_grpo", forward)
    return after


def _options(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sampler's options among a denoiser's arguments, wherever they stand."""
    for value in (named.get("transformer_options"), *arguments):
        if isinstance(value, dict) and "sample_sigmas" in value:
            return value
    raise RuntimeError("this sampler does not say which steps it takes; set `steps` to all")
