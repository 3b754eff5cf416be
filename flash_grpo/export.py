"""Exports of a run: one adapter file for ComfyUI and diffusers, a peft folder, or whole models for either of them."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flash_grpo.card_pictures import draw_pictures
from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError, unknown_name
from flash_grpo.export_files import (
    FORMAT_VERSION,
    RECORD,
    appearing,
    copy_checked,
    read_tensors,
    refuse_foreign,
    write_record,
    write_tensors,
)
from flash_grpo.export_native import refuse_unfit, sketch, write_autoencoder, write_denoiser
from flash_grpo.export_source import Source, read_source
from flash_grpo.export_usage import WORKFLOW, usage_lines
from flash_grpo.files import write_atomic
from flash_grpo.model_card import README, Subject, card
from flash_grpo.models.folder import (
    DENOISER,
    INDEX,
    content_hash,
    denoiser_files,
    flow_shift,
    licence,
    public_name,
    revision,
)
from flash_grpo.native import LAYERS
from flash_grpo.workflow import for_run

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_BLOCK_LAYER = re.compile(r"(blocks\.\d+)\.(.+)")


def export_run(run: Path, kind: str, which: str = "best", output: Path | None = None, name: str | None = None) -> Path:
    """Export a checkpoint as adapter, peft, merged or native into RUN/export/KIND or `output`; returns that folder.

    `which` is best, latest or an update's number; `name` calls the run otherwise than its folder. The folder appears
    whole, after all tensors were read back, and replaces an earlier export only. Raises InputError for what cannot be
    exported (zero or non-finite weights, an adapter of a full fine-tuning, no such checkpoint) or written (a folder
    with other content); RuntimeError if the disk fails.
    """
    if kind not in WRITERS:
        raise unknown_name("export format", kind, WRITERS)
    source = read_source(run, which, name)
    if source.config.adapter == "full" and kind not in WHOLE:
        raise InputError(
            f"{run} trained all weights of its model, so it has no adapter; export it with --format merged or native"
        )
    target = output or run / "export" / kind
    try:
        refuse_foreign(target)
        with appearing(target) as folder:
            facts = _facts(source, kind)
            WRITERS[kind](source, folder, facts)
            if kind == "adapter":
                shift = source.config.shift or flow_shift(source.base)
                graph = for_run(source.config, public_name(source.config), source.file_name, shift)
                write_atomic(folder / WORKFLOW, json.dumps(graph, indent=1, ensure_ascii=False))
            _write_card(source, kind, target, folder, facts)
            write_record(folder, facts)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL_DISK:
            raise RuntimeError(f"cannot finish the export {target}: {reason}; free some space and repeat it") from error
        raise InputError(f"cannot write the export {target}: {reason}; choose another folder with --output") from error
    return target


def export_result(folder: Path) -> dict[str, Any]:
    """What an export wrote, for programs: its folder, facts, and size and SHA-256 of every file."""
    record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return {"folder": str(folder.resolve()), **record}


def _write_card(source: Source, kind: str, target: Path, folder: Path, facts: Mapping[str, str]) -> None:
    """The model card, with the pictures it shows."""
    pictures = draw_pictures(source.run, source.update, source.config.rewards, folder)
    usage = usage_lines(source, kind, target)
    about = Subject(source.run, source.name, source.update, kind, source.config, facts, usage, pictures)
    (folder / README).write_text(card(about), encoding="utf-8")


def _facts(source: Source, kind: str) -> dict[str, str]:
    """Where the weights come from, as safetensors metadata."""
    config = source.config
    facts = {
        "format": "pt",
        "flash_grpo.format_version": str(FORMAT_VERSION),
        "flash_grpo.format": kind,
        "flash_grpo.version": metadata.version("flash-grpo-studio"),
        "flash_grpo.run": source.name,
        "flash_grpo.update": str(source.update),
        "flash_grpo.rewards": json.dumps(config.rewards),
        "flash_grpo.reward_options": json.dumps(config.reward_options),
        "flash_grpo.judged_at": json.dumps(_judged_at(config)),
        "flash_grpo.base_model": public_name(config),
        "flash_grpo.expert": "none",
    }
    if source.base is not None:
        facts["flash_grpo.base_sha256"] = content_hash(source.base)
        facts["flash_grpo.base_sketch"] = json.dumps(sketch(source.base))
    if known := licence(config.model):
        facts["flash_grpo.base_licence"] = known
    if pinned := revision(config):
        facts["flash_grpo.base_revision"] = pinned
    if gains := _gains(source):
        facts["flash_grpo.gains"] = json.dumps(gains)
    if config.adapter == "lora":
        facts |= {"flash_grpo.lora_rank": str(config.lora_rank), "flash_grpo.lora_alpha": f"{config.lora_alpha:g}"}
    return facts


def _judged_at(config: RunConfig) -> dict[str, Any]:
    """The settings that the gains were measured with."""
    keys = ("width", "height", "frames", "fps", "shift", "negative_prompt")
    return {
        **{key: getattr(config, key) for key in keys},
        "steps": config.evaluation_steps,
        "guidance": config.deployment_guidance(),
    }


def _gains(source: Source) -> dict[str, Any] | None:
    """Held-out figures per reward, if the run's summary is about this checkpoint."""
    try:
        summary = json.loads((source.run / "summary.json").read_text(encoding="utf-8"))
        gains: dict[str, Any] | None = summary["heldout"] if summary["best_update"] == source.update else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a run that is under way or was stopped has no such figures
    return gains


# the formats ---------------------------------------------------------------------------------------------------------


def native_adapter(source: Source) -> dict[str, torch.Tensor]:
    """The adapter under native Wan names, the scale baked into B: what ComfyUI and diffusers both apply as it is."""
    tensors: dict[str, torch.Tensor] = {}
    strange = []
    for layer, (a, b) in source.layers().items():
        match = _BLOCK_LAYER.fullmatch(layer)
        if match is None or match[2] not in LAYERS:
            strange.append(layer)
            continue
        native = f"diffusion_model.{match[1]}.{LAYERS[match[2]]}"
        tensors |= {f"{native}.lora_A.weight": a, f"{native}.lora_B.weight": b * source.scale}
    if strange:
        raise InputError(
            f"expected an adapter of attention and feed-forward layers, got one of {', '.join(strange[:3])}, which "
            "ComfyUI and diffusers would not both load; export it with --format peft or merged"
        )
    return tensors


def _write_adapter(source: Source, folder: Path, facts: Mapping[str, str]) -> None:
    write_tensors(folder / source.file_name, native_adapter(source), facts)


def _write_peft(source: Source, folder: Path, facts: Mapping[str, str]) -> None:
    """As peft writes it; the metadata tells diffusers rank and scale."""
    from peft import LoraConfig

    config = source.config
    lora = {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": sorted(config.lora_targets)}
    LoraConfig(**lora, base_model_name_or_path=public_name(config), inference_mode=True).save_pretrained(folder)
    prefix = "base_model.model."
    tensors = {
        f"{prefix}{layer}.lora_{letter}.weight": tensor
        for layer, pair in source.layers().items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    for_diffusers = json.dumps({prefix + key: value for key, value in lora.items()})
    write_tensors(folder / "adapter_model.safetensors", tensors, {**facts, "lora_adapter_metadata": for_diffusers})


def _write_merged(source: Source, folder: Path, facts: Mapping[str, str]) -> None:
    """The base pipeline with the trained weights in its denoiser, one weight file in memory at a time."""
    base = _base_to_merge(source)
    shards = denoiser_files(base)
    _copy_frame(base, folder, without=shards)
    merge = _Merge(source)
    size = 0
    for shard in shards:
        tensors = {name: merge(name, tensor) for name, tensor in read_tensors(shard).items()}
        size += sum(tensor.nbytes for tensor in tensors.values())
        write_tensors(folder / DENOISER / shard.name, tensors, facts)
    merge.check()
    if (index := folder / DENOISER / INDEX).is_file():
        content = json.loads(index.read_text(encoding="utf-8"))
        index.write_text(json.dumps({**content, "metadata": {"total_size": size}}, indent=1), encoding="utf-8")


def _write_native(source: Source, folder: Path, facts: Mapping[str, str]) -> None:
    """Denoiser and autoencoder under native names, in folders named as those in ComfyUI's `models`."""
    base = _base_to_merge(source)
    refuse_unfit(base)
    merge = _Merge(source)
    write_denoiser(base, folder / "diffusion_models" / source.file_name, facts, merge)
    merge.check()
    about = {
        name: facts[name] for name in facts if name.startswith(("format", "flash_grpo.base", "flash_grpo.version"))
    }
    write_autoencoder(base, folder / "vae" / source.autoencoder_name, about)


def _base_to_merge(source: Source) -> Path:
    if source.base is None:
        raise InputError(
            f"the base model {source.config.model!r} is not on this machine, and merging needs its weights; bring it "
            "here under that name, or export with --format adapter"
        )
    return source.base


class _Merge:
    """Puts the trained weights in the place of the base's, or adds LoRA to them, and sees that none was left out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layers = source.layers() if source.config.adapter == "lora" else {}
        self.pending = {f"{layer}.weight" for layer in self.layers} or set(source.weights)
        self.wanted = frozenset(self.pending)
        self.changed = False

    def __call__(self, name: str, base: torch.Tensor) -> torch.Tensor:
        """The weight as it is deployed; float32 where it was trained, so that small changes survive."""
        if name not in self.wanted:
            return base
        self.pending.discard(name)
        new = _trained(self.source, name, base, self.layers.get(name.removesuffix(".weight")))
        self.changed = self.changed or not torch.equal(new, base.float())
        return new

    def check(self) -> None:
        """InputError unless every trained weight found its place and changed something."""
        if self.pending:
            raise InputError(
                f"{self.source.base} has no weight {min(self.pending)}, so it is not the model that was trained; "
                "restore that one"
            )
        if not self.changed:
            raise InputError(
                f"{self.source.run} is not exported: its weights equal the base model's; choose another checkpoint"
            )


def _trained(
    source: Source, name: str, base: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """A trained weight, or a base weight with its LoRA added."""
    new = source.weights[name] if pair is None else pair[1] @ pair[0] * source.scale
    if new.shape != base.shape:
        raise InputError(
            f"{name} is {list(base.shape)} in {source.base} and {list(new.shape)} in the run, so it is not the model "
            "that was trained; restore that one"
        )
    return new if pair is None else base.float() + new


def _copy_frame(base: Path, folder: Path, without: list[Path]) -> None:
    """Copy all parts of a pipeline but its denoiser's weights."""
    index = base / "model_index.json"
    parts = [name for name, value in json.loads(index.read_text(encoding="utf-8")).items() if isinstance(value, list)]
    for file in [index, *(file for part in parts for file in sorted((base / part).rglob("*")))]:
        if file.is_file() and file not in without:
            copy_checked(file, folder / file.relative_to(base))


WRITERS: dict[str, Callable[[Source, Path, Mapping[str, str]], None]] = {
    "adapter": _write_adapter,
    "peft": _write_peft,
    "merged": _write_merged,
    "native": _write_native,
}
WHOLE = ("merged", "native")
"""Formats that hold a whole model."""
