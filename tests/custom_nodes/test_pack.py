"""The pack as a whole: its copies are true, it stands alone, it installs, and its workflows hold together."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from custom_nodes import generate
from custom_nodes.comfyui_flash_grpo.logic.facts import Facts
from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from custom_nodes.comfyui_flash_grpo.logic.sweep import chosen
from flash_grpo import cli
from flash_grpo.workflow import examples
from flash_grpo_studio.comfyui.pack import NAME, build_zip, install_pack, pack_files, pack_folder

SHIPPED_WITH_COMFYUI = {"aiohttp", "av", "numpy", "PIL", "safetensors", "tokenizers", "torch", "transformers"}
COMFYUI = {"comfy", "comfy_api", "folder_paths", "latent_preview", "server", "nodes"}


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    """A folder that looks like a ComfyUI."""
    (tmp_path / "ComfyUI" / "custom_nodes").mkdir(parents=True)
    (tmp_path / "ComfyUI" / "models").mkdir()
    return tmp_path / "ComfyUI"


def flash_grpo(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


# what it is made of --------------------------------------------------------------------------------------------------


def test_every_copy_is_what_its_source_gives() -> None:
    wanted = generate.copies()
    for path, text in wanted.items():
        assert (generate.PACK / path).read_text(encoding="utf-8") == text, f"{path} is stale: run make comfyui-pack"
    for folder in ("shared", "example_workflows", "web/player"):
        files = [file for file in (generate.PACK / folder).iterdir() if file.is_file() and file.suffix != ".jpg"]
        assert {f"{folder}/{file.name}" for file in files} - {"shared/__init__.py"} == {
            path for path in wanted if path.startswith(folder)
        }


def test_it_imports_nothing_that_comfyui_lacks() -> None:
    for file in generate.PACK.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                inside = top in COMFYUI and file.parent.name in ("nodes", NAME)
                assert top in sys.stdlib_module_names or top in SHIPPED_WITH_COMFYUI or inside, f"{file.name}: {name}"


def test_its_logic_is_imported_without_comfyui_and_without_this_project() -> None:
    logic = sorted(file.stem for file in (generate.PACK / "logic").glob("*.py") if file.stem != "__init__")
    code = f"import sys; sys.path.insert(0, {str(generate.PACK.parent)!r})\n"
    code += "".join(f"import {NAME}.logic.{name}\n" for name in logic)
    code += "print([m for m in sys.modules if m.split('.')[0] in ('flash_grpo', 'comfy', 'transformers', 'diffusers')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=120)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_its_project_file_is_what_the_registry_asks_for() -> None:
    content = tomllib.loads((generate.PACK / "pyproject.toml").read_text(encoding="utf-8"))
    project, comfy = content["project"], content["tool"]["comfy"]
    assert project["name"].replace("-", "").isalnum() and "comfyui" not in project["name"].lower()
    assert project["dependencies"] == [] and len(project["version"].split(".")) == 3
    assert project["license"] == {"file": "LICENSE"} and (generate.PACK / "LICENSE").is_file()
    assert project["urls"]["Repository"].startswith("https://")
    assert comfy["PublisherId"] and comfy["DisplayName"] and comfy["requires-comfyui"].startswith(">=")


# workflows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", examples())
def test_an_example_workflow_holds_together_and_holds_no_address_of_a_studio(name: str) -> None:
    file = generate.PACK / "example_workflows" / name
    text = file.read_text(encoding="utf-8")
    assert file.with_suffix(".jpg").is_file(), "ComfyUI's list of templates shows a picture of each"
    graph: dict[str, Any] = json.loads(text)
    nodes = {node["id"]: node for node in graph["nodes"]}
    for link, source, output, target, slot, type_ in graph["links"]:
        assert link in nodes[source]["outputs"][output]["links"]
        assert nodes[target]["inputs"][slot]["link"] == link
        assert type_ in nodes[target]["inputs"][slot]["type"].split(",")
    places = [(*node["pos"], *node["size"]) for node in nodes.values()]
    for index, (x, y, _, height) in enumerate(places):
        for other_x, other_y, _, _ in places[index + 1 :]:
            assert x != other_x or not y <= other_y < y + height, "two nodes lie upon each other"
    assert "token" not in text.lower() and "127.0.0.1" not in text and "7860" not in text


def test_a_sweep_takes_the_updates_that_were_named() -> None:
    files = [(f"{run}-{update}", Facts(f"{run}-{update}", run, update)) for run in "ab" for update in (40, 20, 80)]
    assert [name for name, _ in chosen(files, "a", "all")] == ["a-20", "a-40", "a-80"]
    assert [name for name, _ in chosen(files, "b", "80, 20 80")] == ["b-80", "b-20"]
    with pytest.raises(Problem, match="has no checkpoint of update 60; there are 20, 40, 80"):
        chosen(files, "a", "60")
    with pytest.raises(Problem, match="no checkpoint of run 'c' is in models/loras"):
        chosen(files, "c", "all")
    with pytest.raises(Problem, match="expected `all` or updates such as 20, 40, got 'last'"):
        chosen(files, "a", "last")


# installing ----------------------------------------------------------------------------------------------------------


def test_install_puts_pack_and_pocket_model_into_a_comfyui(
    comfyui: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash_grpo("comfyui", "install", comfyui, monkeypatch=monkeypatch) == 0
    assert "restart ComfyUI" in capsys.readouterr().out
    there = {file.relative_to(comfyui).as_posix() for file in comfyui.rglob("*.safetensors")}
    assert {Path(file).parent.as_posix() for file in there} == {
        f"models/{name}" for name in ("diffusion_models", "vae", "text_encoders", "loras")
    }
    assert (comfyui / "custom_nodes" / NAME / "nodes" / "load_checkpoint.py").is_file()
    # An update replaces the pack and leaves nothing of the earlier one.
    (comfyui / "custom_nodes" / NAME / "old.py").write_text("old")
    assert flash_grpo("comfyui", "install", comfyui, "--no-pocket", monkeypatch=monkeypatch) == 0
    assert not (comfyui / "custom_nodes" / NAME / "old.py").exists()
    assert {path.name for path in (comfyui / "custom_nodes").iterdir()} == {NAME}


def test_install_refuses_what_is_no_comfyui_and_what_is_not_ours(comfyui: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no ComfyUI: expected custom_nodes and models in it"):
        install_pack(tmp_path)
    (comfyui / "custom_nodes" / NAME).mkdir()
    with pytest.raises(ValueError, match="is no node pack of ours; move it away first"):
        install_pack(comfyui)
    (comfyui / "custom_nodes" / NAME).rmdir()
    (comfyui / "custom_nodes" / NAME).symlink_to(pack_folder())
    with pytest.raises(ValueError, match="is a link"):
        install_pack(comfyui)
    assert (pack_folder() / "__init__.py").is_file()


def test_the_zip_holds_the_pack_and_is_the_same_each_time(tmp_path: Path) -> None:
    one, two = build_zip(tmp_path / "one.zip"), build_zip(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {*archive.namelist()} == {f"{NAME}/{name}" for _, name in pack_files()}
    with pytest.raises(ValueError, match="expected a file ending in .zip"):
        build_zip(tmp_path / "pack.tar")


def test_connect_keeps_address_and_token_where_only_comfyui_reads_them(
    comfyui: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("secret-token\n"))
    assert flash_grpo("comfyui", "connect", comfyui, "http://host:7860/", monkeypatch=monkeypatch) == 0
    file = comfyui / "user" / "__flash_grpo" / "studio.json"
    assert json.loads(file.read_text(encoding="utf-8")) == {"url": "http://host:7860", "token": "secret-token"}
    assert file.stat().st_mode & 0o077 == 0 and "secret-token" not in "".join(capsys.readouterr())
    assert flash_grpo("comfyui", "connect", comfyui, "host:7860", monkeypatch=monkeypatch) == 2
