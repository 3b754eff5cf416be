"""Exports of a run: one adapter file for ComfyUI and diffusers, a peft folder, or whole models for either of them."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flash_grpo.checkpoint import PREFIX, choose_checkpoint, load_weights
from flash_grpo.config import RunConfig, load_config
from flash_grpo.doctor import adapter_problem
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
from flash_grpo.files import write_atomic
from flash_grpo.models.folder import (
    DENOISER,
    INDEX,
    base_folder,
    content_hash,
    denoiser_files,
    flow_shift,
    licence,
    public_name,
)
from flash_grpo.models.registry import BUILT_IN
from flash_grpo.native import LAYERS
from flash_grpo.workflow import for_run

HOW_TO = "README.md"
WORKFLOW = "workflow.json"
"""A workflow for ComfyUI that shows the adapter before and after."""
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_BLOCK_LAYER = re.compile(r"(blocks\.\d+)\.(.+)")


@dataclass(frozen=True)
class Source:
    """What is exported: a run's configuration and the weights one checkpoint deploys, named as in the denoiser.

    `base` is the base model's pipeline folder, None if it is not on this machine.
    """

    run: Path
    update: int
    config: RunConfig
    weights: Mapping[str, torch.Tensor]
    base: Path | None

    @property
    def run_name(self) -> str:
        """The run folder's name."""
        return self.run.resolve().name

    @property
    def file_name(self) -> str:
        """Name of the adapter's file; it tells the adapters of several runs apart in one folder."""
        return f"{self.run_name}-{self.update:06d}.safetensors"

    @property
    def autoencoder_name(self) -> str:
        """Name of the base's autoencoder as a native file."""
        return f"{public_name(self.config).rpartition('/')[2]}-vae.safetensors"

    @property
    def scale(self) -> float:
        """What B @ A is multiplied by."""
        return self.config.lora_alpha / self.config.lora_rank

    def layers(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """A [r, in] and B [out, r] of every adapted linear layer; InputError unless they are LoRA of the run's rank."""
        rank = self.config.lora_rank
        names = {re.sub(r"\.lora_[AB]\.weight$", "", name) for name in self.weights}
        pairs = {}
        for name in sorted(names):
            a, b = (self.weights.get(f"{name}.lora_{letter}.weight") for letter in "AB")
            if a is None or b is None or a.shape[0] != rank or b.shape[1] != rank:
                raise InputError(
                    f"expected LoRA matrices of rank {rank} for {name} as config.yaml says, and the checkpoint holds "
                    "others; export the run with the config.yaml it was trained with"
                )
            pairs[name] = (a, b)
        return pairs


def export_run(run: Path, kind: str, which: str = "best", output: Path | None = None) -> Path:
    """Export a checkpoint as adapter, peft, merged or native into RUN/export/KIND or `output`; returns that folder.

    `which` is best, latest or an update's number. The folder appears whole, after all tensors were read back, and
    replaces an earlier export only. Raises InputError for what cannot be exported (zero or non-finite weights, an
    adapter of a full fine-tuning, no such checkpoint) or written (a folder with other content); RuntimeError if the
    disk fails.
    """
    if kind not in WRITERS:
        raise unknown_name("export format", kind, WRITERS)
    source = read_source(run, which)
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
            (folder / HOW_TO).write_text(_how_to(source, kind, target), encoding="utf-8")
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


def read_source(run: Path, which: str) -> Source:
    """Configuration and verified weights of a run's checkpoint; InputError if they cannot or must not be exported."""
    if not (run / "config.yaml").is_file():
        raise InputError(f"{run} is no run folder: it holds no config.yaml; name the folder that train wrote")
    config = load_config(run / "config.yaml")
    checkpoint = choose_checkpoint(run, which)
    weights = {name.removeprefix(PREFIX): tensor for name, tensor in load_weights(checkpoint).items()}
    if problem := adapter_problem(weights):
        raise InputError(f"{checkpoint} is not exported: {problem}")
    return Source(run, int(checkpoint.name), config, weights, base_folder(config))


def _facts(source: Source, kind: str) -> dict[str, str]:
    """Where the weights come from, as safetensors metadata."""
    config = source.config
    facts = {
        "format": "pt",
        "flash_grpo.format_version": str(FORMAT_VERSION),
        "flash_grpo.format": kind,
        "flash_grpo.version": metadata.version("flash-grpo-studio"),
        "flash_grpo.run": source.run_name,
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


# how to load it ------------------------------------------------------------------------------------------------------


def _how_to(source: Source, kind: str, folder: Path) -> str:
    """The text of README.md beside the export."""
    config = source.config
    known = licence(config.model)
    base = f'"{public_name(config)}"' if config.model not in BUILT_IN else f'built_in_folder("{config.model}")'
    dtype = f"dtype=torch.{config.dtype}"  # a pipeline's parts may be stored in others than they were trained with
    lines = {
        "adapter": [
            f"ComfyUI: copy `{source.file_name}` into `models/loras` and choose it in LoraLoaderModelOnly, strength 1; "
            f"or open `{WORKFLOW}` there, with our node pack (`flash-grpo comfyui install`), to see before and after.",
            "",
            "```python",
            f"pipeline = WanPipeline.from_pretrained({base}, {dtype})",
            f'pipeline.load_lora_weights("{folder.name}", weight_name="{source.file_name}")',
            "```",
        ],
        "peft": [
            "```python",
            f"pipeline = WanPipeline.from_pretrained({base}, {dtype})",
            f'aligned = PeftModel.from_pretrained(pipeline.transformer, "{folder.name}")',
            "pipeline.transformer = aligned.merge_and_unload()",
            "```",
        ],
        "merged": ["```python", f'pipeline = WanPipeline.from_pretrained("{folder.name}", {dtype})', "```"],
        "native": [
            "ComfyUI: copy the folders `diffusion_models` and `vae` into its `models`, then choose "
            f"`{source.file_name}` in Load Diffusion Model and `{source.autoencoder_name}` in Load VAE.",
        ],
    }[kind]
    judged = (
        f"Judged at {config.width}x{config.height}, {config.frames} frames, {config.evaluation_steps} steps, guidance "
        f"{config.deployment_guidance():g}{f', flow shift {config.shift:g}' if config.shift else ''}."
    )
    return "\n".join(
        [
            f"# {source.run_name}, update {source.update}",
            "",
            f"Aligned from `{public_name(config)}`{f' (licence of the base: {known})' if known else ''}. {judged}",
            "",
            *lines,
            "",
        ]
    )
