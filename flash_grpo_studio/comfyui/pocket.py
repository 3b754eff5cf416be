"""The pocket model as ComfyUI's own loaders read it, with adapters that were aligned for it."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

from flash_grpo.errors import InputError

DENOISER = "diffusion_models/flash-grpo-pocket.safetensors"
AUTOENCODER = "vae/flash-grpo-pocket-vae.safetensors"
TEXT_ENCODER = "text_encoders/flash-grpo-pocket-text.safetensors"
"""Files within a ComfyUI's `models`."""


def export_pocket(models: Path) -> list[Path]:
    """Write the pocket model and the aligned adapters that ship with it into a ComfyUI's `models` folder.

    Files of these names are replaced. InputError if the folder cannot be written.
    """
    from flash_grpo.export_native import write_autoencoder, write_denoiser
    from flash_grpo.models.folder import content_hash, licence
    from flash_grpo.models.registry import built_in_folder

    base = built_in_folder("pocket")
    facts = {"format": "pt", "flash_grpo.base_model": "pocket", "flash_grpo.base_sha256": content_hash(base)}
    facts["flash_grpo.base_licence"] = licence("pocket") or ""
    try:
        write_denoiser(base, models / DENOISER, facts)
        write_autoencoder(base, models / AUTOENCODER, facts)
        _write_text_encoder(base, models / TEXT_ENCODER, facts)
        adapters = [_copy(source, models / "loras" / source.name) for source in aligned_adapters()]
    except OSError as error:
        raise InputError(
            f"cannot write the pocket model into {models}: {error.strerror or error}; choose another folder"
        ) from error
    return [models / DENOISER, models / AUTOENCODER, models / TEXT_ENCODER, *adapters]


def aligned_adapters() -> list[Path]:
    """Adapters that were aligned for the pocket model and ship with this package, by name."""
    folder = Path(str(resources.files("flash_grpo.models.pocket") / "aligned"))
    return sorted(folder.glob("*.safetensors"))


def _write_text_encoder(base: Path, file: Path, facts: dict[str, str]) -> None:
    """One file with weights, configuration and tokenizer, which the node `Pocket text encode` reads."""
    from flash_grpo.export_files import read_tensors, write_tensors
    from flash_grpo.models.pocket.architecture import MAX_SEQUENCE_LENGTH

    more = {
        "flash_grpo.text_config": (base / "text_encoder" / "config.json").read_text(encoding="utf-8"),
        "flash_grpo.tokenizer": (base / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"),
        "flash_grpo.max_length": str(MAX_SEQUENCE_LENGTH),
    }
    small = {key: json.dumps(json.loads(value)) for key, value in more.items()}
    write_tensors(file, read_tensors(base / "text_encoder" / "model.safetensors"), {**facts, **small})


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target
