"""From whatever an adapter's file calls its layers to the layers of a native Wan model, and what does not fit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..shared.native import LAYERS, diffusers_name, native_name
from .adapter_file import Header
from .problem import Problem, plain

_PREFIX = re.compile(r"(?:base_model\.model\.|diffusion_model\.|transformer\.)*")
_PARTS = {
    ".lora_A.weight": "a",
    ".lora_A.default.weight": "a",
    ".lora_down.weight": "a",
    ".lora_B.weight": "b",
    ".lora_B.default.weight": "b",
    ".lora_up.weight": "b",
    ".alpha": "alpha",
}
_ADAPTED = re.compile(rf"blocks\.\d+\.(?:{'|'.join(map(re.escape, LAYERS.values()))})")


@dataclass(frozen=True)
class Layer:
    """One adapted layer: the keys in the file of its matrices A and B and its alpha, and its rank."""

    a: str
    b: str
    alpha: str | None
    rank: int


@dataclass(frozen=True)
class Match:
    """How a file fits a model: its layers by native name, keys that nothing can use, layers that stay as they are."""

    layers: Mapping[str, Layer]
    unused: tuple[str, ...]
    untouched: tuple[str, ...]

    def refuse_unused(self, file: str) -> None:
        """Problem if any key of the file would silently do nothing."""
        if not self.layers:
            example = f", such as {plain(self.unused[0], 80)}" if self.unused else ""
            raise Problem(
                f"{file} holds no layer of the connected model{example}; it is an adapter of another model, or no "
                "LoRA: connect its base model or choose another file"
            )
        if self.unused:
            raise Problem(
                f"{len(self.unused)} keys of {file} fit nothing in the connected model, such as "
                f"{plain(self.unused[0], 80)}; it belongs to another model: connect its base model"
            )


def split(key: str) -> tuple[str, str] | None:
    """The native layer and the part (a, b, alpha) a key of an adapter is about; None if it is about none."""
    for ending, part in _PARTS.items():
        if key.endswith(ending):
            layer = _PREFIX.sub("", key.removesuffix(ending), count=1)
            if (native := native_name(layer)) is not None:
                return native, part
            return (layer, part) if diffusers_name(layer) is not None else None
    return None


def match(header: Header, model: Mapping[str, tuple[int, ...]], file: str) -> Match:
    """Match a file's keys with a model's weights, given by native layer name with their shapes.

    Problem if the model is no Wan model, or a layer's matrices fit neither each other nor the model's weight.
    """
    if "head.modulation" not in model:
        raise Problem("the connected model is no Wan model; connect the base model the adapter was trained on")
    parts: dict[str, dict[str, str]] = {}
    unused = []
    for key in header.shapes:
        found = split(key)
        if found is None or found[0] not in model or len(model[found[0]]) < 2:
            unused.append(key)
        elif found[1] in parts.setdefault(found[0], {}):
            raise Problem(f"{file} holds {found[0]} twice; choose a file that names each layer once")
        else:
            parts[found[0]][found[1]] = key
    layers = {}
    for name, keys in parts.items():
        if "a" not in keys or "b" not in keys:
            raise Problem(f"{file} holds only one half of {name}; it is damaged or no LoRA: choose another file")
        layers[name] = _layer(header, keys, name, model[name], file)
    untouched = tuple(name for name in model if _ADAPTED.fullmatch(name) and name not in layers)
    return Match(layers, tuple(unused), untouched)


def _layer(header: Header, keys: Mapping[str, str], name: str, weight: tuple[int, ...], file: str) -> Layer:
    a, b = header.shapes[keys["a"]], header.shapes[keys["b"]]
    if len(a) < 2 or len(b) < 2 or a[0] != b[1]:
        raise Problem(f"the matrices of {name} in {file} have different ranks ({list(a)} and {list(b)}); it is damaged")
    if (b[0], *a[1:]) != weight:
        raise Problem(
            f"{file} changes {name} as {[b[0], *a[1:]]} and the connected model has it as {list(weight)}; it is an "
            "adapter of another size of the model: connect its base model"
        )
    return Layer(keys["a"], keys["b"], keys.get("alpha"), a[0])


def scale_of(header: Header, layer: Layer, alpha: float | None, default: float | None) -> float:
    """What B @ A is multiplied by: the layer's own alpha by its rank, else the file's scale, else 1."""
    if alpha is not None:
        return alpha / layer.rank
    return 1.0 if default is None else default


def file_scale(header: Header, file: Path) -> tuple[float | None, str]:
    """The scale that holds for all of a file's layers, and in words where it comes from; None if nothing says it.

    Ours have it baked in. PEFT keeps rank and alpha in adapter_config.json beside the file, diffusers in the metadata.
    """
    if header.metadata.get("flash_grpo.format") == "adapter":
        return 1.0, "scale baked in"
    found = _diffusers_config(header.metadata) or _peft_config(file)
    if found:
        return _scale(found, file)
    if any(key.endswith(".alpha") for key in header.shapes):
        return None, "scale by each layer's alpha"
    if all(key.startswith("diffusion_model.") for key in header.shapes):
        return 1.0, "scale 1, as native names without alpha mean"
    return None, "scale 1 assumed: the file does not say its alpha, so its effect may be too weak or too strong"


def _scale(config: Mapping[str, object], file: Path) -> tuple[float, str]:
    if config.get("rank_pattern") or config.get("alpha_pattern") or config.get("use_dora"):
        raise Problem(f"{plain(file.name)} has ranks or scales layer by layer, which is not supported; merge it first")
    try:
        rank, alpha = float(str(config["r"])), float(str(config["lora_alpha"]))
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise Problem(f"the rank and alpha that {plain(file.name)} comes with cannot be read") from error
    return scale, f"scale {scale:g} by its configuration"


def _diffusers_config(metadata: Mapping[str, str]) -> dict[str, object]:
    """diffusers' `lora_adapter_metadata`: a mapping whose keys are prefixed by the model's part."""
    try:
        entries = json.loads(metadata.get("lora_adapter_metadata", "{}"))
        return {str(key).rpartition(".")[2]: value for key, value in entries.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _peft_config(file: Path) -> dict[str, object]:
    beside = file.with_name("adapter_config.json")
    if file.name != "adapter_model.safetensors" or not beside.is_file():
        return {}
    try:
        config = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Problem("adapter_config.json beside the checkpoint cannot be read; copy it again") from error
    return config if isinstance(config, dict) else {}
