"""Native checkpoints: a pipeline's transformer and autoencoder under the names that ComfyUI's own loaders read."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from flash_grpo.errors import InputError
from flash_grpo.export_files import reads_back_differently
from flash_grpo.models.folder import DENOISER, WEIGHTS, denoiser_files
from flash_grpo.native import native_name, renamed
from flash_grpo.sketch import places, sketched

AUTOENCODER = "vae"
WAN_MEAN: tuple[float, ...] = (-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508)
WAN_MEAN += (0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921)
WAN_STD: tuple[float, ...] = (2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743)
WAN_STD += (3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160)
"""Mean and spread of Wan 2.1's latents. ComfyUI puts latents into these units for every Wan model."""

Change = Callable[[str, torch.Tensor], torch.Tensor]
"""A weight by its diffusers name, as it shall be written."""
Reader = Callable[[], torch.Tensor]

_DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
}
_ENTRY = 160
"""Most bytes that one tensor takes in a header beside its name."""
_DENOISER_MUST = {
    "attention_head_dim": 128,
    "freq_dim": 256,
    "patch_size": [1, 2, 2],
    "qk_norm": "rms_norm_across_heads",
    "cross_attn_norm": True,
    "text_dim": 4096,
}
_AUTOENCODER_MUST = {
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "is_residual": False,
    "patch_size": None,
}


def refuse_unfit(base: Path) -> None:
    """InputError if ComfyUI's loader, which takes some sizes of Wan for granted, would misread this pipeline."""
    parts = ((DENOISER, "WanTransformer3DModel", _DENOISER_MUST), (AUTOENCODER, "AutoencoderKLWan", _AUTOENCODER_MUST))
    for part, class_name, must in parts:
        config = _config(base, part)
        if config.get("_class_name") != class_name:
            raise InputError(
                f"expected a {class_name} in {base / part}, got {config.get('_class_name')}; only Wan has native names"
            )
        for key, wanted in must.items():
            found = config.get(key, wanted)
            if found != wanted:
                raise InputError(
                    f"{base.name} cannot become a native checkpoint: ComfyUI's loader expects {key} {wanted} in its "
                    f"{part}, and it has {found}; export it with --format merged or adapter"
                )


def write_denoiser(
    base: Path, file: Path, facts: Mapping[str, str], change: Change = lambda name, tensor: tensor
) -> None:
    """Write a pipeline's denoiser as one native file, one weight in memory at a time, each changed by `change`."""
    places = {name: shard for shard in denoiser_files(base) for name in _names(shard)}
    names = _native(places, file, vae=False)

    def read(name: str) -> Reader:
        return lambda: change(name, _tensor(places[name], name))

    write_stream(file, {native: read(name) for name, native in names.items()}, facts)


def sketch(base: Path) -> dict[str, dict[str, Any]]:
    """Shape and some numbers of a few weights of a pipeline's denoiser, by native name; see flash_grpo.sketch."""
    places_of = {native_name(name): (shard, name) for shard in denoiser_files(base) for name in _names(shard)}
    blocks = 1 + max((int(name.split(".")[1]) for name in places_of if name and name.startswith("blocks.")), default=-1)
    found = {}
    for native in sketched(blocks):
        if native in places_of:
            tensor = _tensor(*places_of[native])
            values = tensor.flatten()[places(tensor.numel())].tolist()
            found[native] = {"shape": list(tensor.shape), "values": [float(f"{value:.5g}") for value in values]}
    return found


def write_autoencoder(base: Path, file: Path, facts: Mapping[str, str]) -> None:
    """Write a pipeline's autoencoder as one native file whose latents are in ComfyUI's units.

    ComfyUI turns the model's latents x into x * WAN_STD + WAN_MEAN before it decodes, whatever autoencoder follows.
    One with latents of another mean and spread gets the difference folded into the 1x1x1 convolutions at its latents.
    """
    source = base / AUTOENCODER / WEIGHTS
    names = _native(_names(source), file, vae=True)
    tensors = {native: _tensor(source, name) for name, native in names.items()}
    config = _config(base, AUTOENCODER)
    mean, std = (torch.tensor(config[f"latents_{what}"], dtype=torch.float64) for what in ("mean", "std"))
    tensors |= folded(tensors, mean, std)

    def read(tensor: torch.Tensor) -> Reader:
        return lambda: tensor

    write_stream(file, {name: read(tensor) for name, tensor in tensors.items()}, facts)


def folded(tensors: Mapping[str, torch.Tensor], mean: torch.Tensor, std: torch.Tensor) -> dict[str, torch.Tensor]:
    """The native autoencoder's conv1 and conv2 that take latents of this mean and spread to Wan's units and back.

    Empty where the units are Wan's own already, so that a Wan autoencoder stays as it is.
    """
    wan_mean, wan_std = (torch.tensor(values, dtype=torch.float64) for values in (WAN_MEAN, WAN_STD))
    if torch.allclose(mean, wan_mean, atol=1e-6) and torch.allclose(std, wan_std, atol=1e-6):
        return {}
    out_weight, out_bias, in_weight, in_bias = (
        tensors[name].double() for name in ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias")
    )
    ratio = wan_std / std
    scale = torch.cat([ratio, torch.ones_like(ratio)])  # the second half is the log-variance, which nobody reads
    shift = torch.cat([wan_mean - mean * ratio, torch.zeros_like(ratio)])
    flat = in_weight[:, :, 0, 0, 0]
    changed = {
        "conv1.weight": out_weight * scale[:, None, None, None, None],
        "conv1.bias": out_bias * scale + shift,
        "conv2.weight": in_weight / ratio[None, :, None, None, None],
        "conv2.bias": in_bias + flat @ (mean - wan_mean / ratio),
    }
    return {name: tensor.float() for name, tensor in changed.items()}


def write_stream(file: Path, tensors: Mapping[str, Reader], facts: Mapping[str, str]) -> None:
    """Write a safetensors file tensor by tensor, each made when it is its turn, then read back and compare each.

    The header comes first and is known last, so room is left for it; the format lets a header end in spaces.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    room = len(json.dumps(dict(facts))) + sum(len(name) + _ENTRY for name in tensors) + _ENTRY
    room += -room % 8
    header: dict[str, Any] = {"__metadata__": dict(facts)}
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", room) + b" " * room)
        for name in sorted(tensors):
            tensor = tensors[name]().contiguous()
            start = stream.tell() - room - 8
            stream.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
            span = [start, stream.tell() - room - 8]
            header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
        stream.seek(8)
        stream.write(json.dumps(header).encode().ljust(room))
    with safe_open(file, framework="pt") as written:
        for name, read in tensors.items():
            found, wanted = written.get_tensor(name), read()
            if found.dtype != wanted.dtype or not torch.equal(found, wanted):
                raise reads_back_differently(file, name)


def _native(names: Iterable[str], file: Path, vae: bool) -> dict[str, str]:
    try:
        return renamed(names, vae)
    except ValueError as error:
        raise InputError(f"cannot write {file.name}: {error}; export it with --format merged") from error


def _config(base: Path, part: str) -> dict[str, Any]:
    file = base / part / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file} ({error}); mend the base model's folder") from error
    return config


def _names(file: Path) -> list[str]:
    with _opened(file) as weights:
        return list(weights.keys())


def _tensor(file: Path, name: str) -> torch.Tensor:
    with _opened(file) as weights:
        tensor: torch.Tensor = weights.get_tensor(name)
    return tensor


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the base model's {file}: {error}; mend or download it again") from error
