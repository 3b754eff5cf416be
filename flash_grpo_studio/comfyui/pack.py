"""The node pack for ComfyUI: found in a checkout or an installed package, copied into a ComfyUI, or zipped."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from flash_grpo.errors import InputError
from flash_grpo.files import atomic_path

NAME = "comfyui_flash_grpo"
_HERE = Path(__file__).resolve()
PLACES = (_HERE.parents[2] / "custom_nodes" / NAME, _HERE.parent / "node_pack")
"""Where the pack lies: beside the code in a checkout, within this package where it was installed (see setup.py)."""
_LEFT_OUT = ("__pycache__", ".DS_Store")


def pack_folder() -> Path:
    """The pack's files; InputError if this installation has none."""
    for place in PLACES:
        if (place / "pyproject.toml").is_file():
            return place
    raise InputError("this installation lacks the ComfyUI node pack; install flash-grpo-studio from its wheel again")


def pack_files() -> Iterator[tuple[Path, str]]:
    """Every file of the pack with its path within it."""
    folder = pack_folder()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(part in _LEFT_OUT for part in file.relative_to(folder).parts):
            yield file, file.relative_to(folder).as_posix()


def check_comfyui(folder: Path) -> None:
    """InputError unless a folder is a ComfyUI's, or what its --base-directory names."""
    if not (folder / "custom_nodes").is_dir() or not (folder / "models").is_dir():
        raise InputError(
            f"{folder} is no ComfyUI: expected custom_nodes and models in it; name the folder that ComfyUI was "
            "installed into, or its --base-directory"
        )


def install_pack(comfyui: Path) -> Path:
    """Put the pack into a ComfyUI, in the place of an earlier one; InputError if that cannot or must not be."""
    check_comfyui(comfyui)
    target = comfyui / "custom_nodes" / NAME
    if target.is_symlink():
        raise InputError(f"{target} is a link, so the pack is installed from elsewhere; remove the link first")
    if target.exists() and not (target / "pyproject.toml").is_file():
        raise InputError(f"{target} exists and is no node pack of ours; move it away first")
    staging = target.with_name(f".{NAME}.disabled")  # ComfyUI loads no folder that ends so
    try:
        shutil.rmtree(staging, ignore_errors=True)
        for file, name in pack_files():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, staging / name)
        if target.exists():
            shutil.rmtree(target)
        staging.rename(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; check the folder's rights") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def build_zip(file: Path) -> Path:
    """Write the pack as a zip to unpack into `custom_nodes`; the same files give the same bytes."""
    if file.suffix.lower() != ".zip":
        raise InputError(f"expected a file ending in .zip, got {file}; rename it")
    try:
        with atomic_path(file) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for source, name in pack_files():
                entry = zipfile.ZipInfo(f"{NAME}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, source.read_bytes())
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror or error}; choose another place") from error
    return file
