"""How an export is loaded: lines of Markdown for its model card, whose code runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path

from flash_grpo.export_source import Source
from flash_grpo.markdown import code
from flash_grpo.models.folder import public_name
from flash_grpo.models.registry import BUILT_IN

WORKFLOW = "workflow.json"
"""A workflow for ComfyUI that shows an adapter before and after."""


def usage_lines(source: Source, kind: str, folder: Path) -> list[str]:
    """What to do with an export of a kind in `folder`, in the programs it is for."""
    return {"adapter": _adapter, "peft": _peft, "merged": _merged, "native": _native}[kind](source, folder.name)


def _adapter(source: Source, folder: str) -> list[str]:
    file = code(source.file_name)
    load = f"pipeline.load_lora_weights({_text(folder)}, weight_name={_text(source.file_name)})"
    return [
        f"**ComfyUI:** copy {file} into `models/loras` and choose it in LoraLoaderModelOnly, strength 1; or open "
        f"`{WORKFLOW}` there, with our node pack (`flash-grpo comfyui install`), to see before and after.",
        "",
        "**diffusers:**",
        "",
        *_python(source, _pipeline(source), load),
        "",
        _where(folder),
        "",
        "**PEFT:** `flash-grpo export --format peft` writes the same adapter as PEFT loads it.",
    ]


def _peft(source: Source, folder: str) -> list[str]:
    found = f"aligned = PeftModel.from_pretrained(pipeline.transformer, {_text(folder)})"
    direct = f'load_lora_adapter({_text(folder)}, prefix="base_model.model", weight_name="adapter_model.safetensors")'
    return [
        "**PEFT:**",
        "",
        *_python(source, _pipeline(source), found, "pipeline.transformer = aligned.merge_and_unload()", peft=True),
        "",
        _where(folder),
        "",
        f"**diffusers** alone loads it by {code(f'pipeline.transformer.{direct}')}.",
        "",
        "**ComfyUI:** `flash-grpo export --format adapter` writes the same adapter as ComfyUI loads it.",
    ]


def _merged(source: Source, folder: str) -> list[str]:
    return [
        "**diffusers:**",
        "",
        *_python(source, f"pipeline = WanPipeline.from_pretrained({_text(folder)}, {_dtype(source)})", base=False),
        "",
        _where(folder),
        "",
        "**ComfyUI:** `flash-grpo export --format native` writes the same weights as ComfyUI loads them.",
    ]


def _native(source: Source, folder: str) -> list[str]:
    del folder
    return [
        "**ComfyUI:** copy the folders `diffusion_models` and `vae` into its `models`, then choose "
        f"{code(source.file_name)} in Load Diffusion Model and {code(source.autoencoder_name)} in Load VAE.",
        "",
        "**diffusers:** `flash-grpo export --format merged` writes the same weights as diffusers loads them.",
    ]


def _where(folder: str) -> str:
    return f"In place of {code(folder)} give the path of this folder, or, where it lies on a hub, its `OWNER/NAME`."


def _python(source: Source, *statements: str, peft: bool = False, base: bool = True) -> list[str]:
    imports = ["import torch", "from diffusers import WanPipeline"]
    if base and source.config.model in BUILT_IN:
        imports.append("from flash_grpo.models.registry import built_in_folder")
    if peft:
        imports.append("from peft import PeftModel")
    return ["```python", *imports, "", *statements, "```"]


def _pipeline(source: Source) -> str:
    model = source.config.model
    base = f"built_in_folder({_text(model)})" if model in BUILT_IN else _text(public_name(source.config))
    return f"pipeline = WanPipeline.from_pretrained({base}, {_dtype(source)})"


def _dtype(source: Source) -> str:
    """Said because a pipeline's parts may be stored in other types than they were trained with."""
    return f"dtype=torch.{source.config.dtype}"


def _text(text: str) -> str:
    """A text as Python writes it; no quote or end of line within it ends it."""
    return json.dumps(text)
