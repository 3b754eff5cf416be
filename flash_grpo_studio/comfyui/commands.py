"""`flash-grpo comfyui`: put the node pack and the pocket model into a ComfyUI, and connect it to a studio."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from flash_grpo.errors import InputError
from flash_grpo_studio.comfyui.pack import build_zip, check_comfyui, install_pack

comfyui = typer.Typer(help="Use aligned checkpoints in ComfyUI.", no_args_is_help=True)

Comfy = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a ComfyUI.")]


@comfyui.command()
def install(
    folder: Comfy,
    pocket: Annotated[
        bool, typer.Option("--pocket/--no-pocket", help="Also the pocket model and adapters aligned for it.")
    ] = True,
) -> None:
    """Put the node pack into a ComfyUI, and the pocket model for its first example."""
    target = install_pack(folder)
    print(f"installed the node pack into {target}")
    if pocket:
        _pocket(folder / "models")
    print("restart ComfyUI, then open Templates, comfyui_flash_grpo, and press Run in one of them")


@comfyui.command()
def build(
    file: Annotated[Path, typer.Argument(metavar="ZIP", help="File to write.")] = Path("comfyui_flash_grpo.zip"),
) -> None:
    """Write the node pack as a zip file, to be unpacked into a ComfyUI's custom_nodes."""
    print(f"wrote {build_zip(file)}; unpack it into ComfyUI's custom_nodes")


@comfyui.command("export-pocket")
def export_pocket_model(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A ComfyUI's models folder, or any other.")],
) -> None:
    """Write the pocket model under native names, its text encoder, and adapters aligned for it."""
    _pocket(folder)


@comfyui.command()
def connect(
    folder: Comfy,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the studio, such as http://host:7860.")],
) -> None:
    """Tell a ComfyUI where the studio is; its token is asked for, or read from standard input."""
    check_comfyui(folder)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise InputError(f"expected an address such as http://host:7860, got {url!r}")
    file = folder / "user" / "__flash_grpo" / "studio.json"
    content = json.dumps({"url": url.rstrip("/"), "token": _token()})
    try:
        _write_secret(file, content)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror or error}; check the folder's rights") from error
    print(f"wrote {file}, which ComfyUI reads and serves to nobody")


def _write_secret(file: Path, content: str) -> None:
    """Write a file that nobody else may read at any moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)  # readable by its owner alone
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(content)
    os.replace(name, file)


def _token() -> str:
    """Asked for at a terminal without showing it; otherwise the first line of standard input."""
    if sys.stdin.isatty():
        given: str = typer.prompt("Token (made in the studio's settings)", hide_input=True, default="", err=True)
        return given.strip()
    return sys.stdin.readline().strip()


def _pocket(models: Path) -> None:
    from flash_grpo_studio.comfyui.pocket import export_pocket

    for file in export_pocket(models):
        print(f"wrote {file}")
