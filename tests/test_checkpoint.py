"""Checkpoints: whole or absent, verified, and readable by diffusers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from safetensors import safe_open

from flash_grpo.checkpoint import (
    load_weights,
    prune,
    put_weights,
    read_pointer,
    save_checkpoint,
    trained_weights,
    write_pointers,
)
from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.models.wan import WanModel
from tests.tiny import config_for, embed, open_model, perturb, relative_gap


@pytest.fixture
def model(tiny_folder: Path) -> WanModel:
    return open_model(tiny_folder, adapter=0.1, rank=4, alpha=8.0)


def config(folder: Path, **changes: Any) -> RunConfig:
    return config_for(folder, lora_rank=4, lora_alpha=8.0, **changes)


def named(model: WanModel) -> dict[str, torch.Tensor]:
    return dict(model.trainable())


def test_weights_survive_the_round_trip(model: WanModel, tiny_folder: Path, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 20, config(tiny_folder), named(model), None)
    assert path == tmp_path / "checkpoints" / "000020"
    assert sorted(file.name for file in path.iterdir()) == ["adapter.safetensors", "manifest.json"]
    wanted = {name: weight.detach().clone() for name, weight in model.trainable()}
    perturb(model, 1.0)
    put_weights(named(model), load_weights(path))
    for name, weight in model.trainable():
        assert torch.equal(weight, wanted[name])


def test_the_averaged_weights_are_what_is_deployed(model: WanModel, tiny_folder: Path, tmp_path: Path) -> None:
    averaged = {name: weight.detach() + 1 for name, weight in model.trainable()}
    path = save_checkpoint(tmp_path, 1, config(tiny_folder), named(model), averaged)
    assert (path / "ema.safetensors").is_file() and (path / "adapter.safetensors").is_file()
    loaded = load_weights(path)
    assert all(torch.equal(loaded[name], weight) for name, weight in trained_weights(averaged).items())


def test_the_manifest_names_sizes_and_digests(model: WanModel, tiny_folder: Path, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 3, config(tiny_folder), named(model), named(model))
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["update"] == 3
    assert set(manifest["files"]) == {"adapter.safetensors", "ema.safetensors"}
    for name, entry in manifest["files"].items():
        assert entry["size"] == (path / name).stat().st_size
        assert len(entry["sha256"]) == 64


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "no manifest", "manifest torn"])
def test_a_damaged_checkpoint_is_refused(model: WanModel, tiny_folder: Path, tmp_path: Path, damage: str) -> None:
    path = save_checkpoint(tmp_path, 1, config(tiny_folder), named(model), None)
    file, manifest = path / "adapter.safetensors", path / "manifest.json"
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-5] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:-8])
    elif damage == "gone":
        file.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text(encoding="utf-8")[:20])
    with pytest.raises(InputError, match="use another checkpoint") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("failing", ["rename", "replace"])
def test_an_interrupted_save_leaves_the_old_checkpoint_and_nothing_half(
    model: WanModel, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    first = save_checkpoint(tmp_path, 1, config(tiny_folder), named(model), None)
    write_pointers(tmp_path, 1, 1)
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise OSError("no space left on device")

        patch.setattr(Path, failing, fail)
        with pytest.raises(OSError, match="no space left"):
            save_checkpoint(tmp_path, 2, config(tiny_folder), named(model), None)
    visible = [path.name for path in (tmp_path / "checkpoints").iterdir() if not path.name.startswith(".")]
    assert visible == ["000001"]
    assert read_pointer(tmp_path, "latest") == first
    load_weights(first)
    load_weights(
        save_checkpoint(tmp_path, 2, config(tiny_folder), named(model), None)
    )  # leftovers do not stand in the way


def test_pointers_name_checkpoints(tmp_path: Path) -> None:
    assert read_pointer(tmp_path, "best") is None
    write_pointers(tmp_path, None, 4)
    assert read_pointer(tmp_path, "best") is None
    assert read_pointer(tmp_path, "latest") == tmp_path / "checkpoints" / "000004"
    write_pointers(tmp_path, 4, 8)
    assert json.loads((tmp_path / "pointers.json").read_text()) == {"best": "000004", "latest": "000008"}


def test_pruning_keeps_what_is_named(tmp_path: Path) -> None:
    for name in ("000001", "000002", "000003", "notes"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    prune(tmp_path, {2, 3, 0})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["000002", "000003", "notes"]


def test_weights_of_another_shape_of_run_are_refused(model: WanModel, tiny_folder: Path, tmp_path: Path) -> None:
    weights = load_weights(save_checkpoint(tmp_path, 1, config(tiny_folder), named(model), None))
    other = open_model(tiny_folder)
    other.add_adapter(4, 8.0, ["to_q"], "gaussian")
    with pytest.raises(InputError, match="do not fit this model"):
        put_weights(named(other), weights)


@torch.no_grad()
@pytest.mark.parametrize("file", ["adapter.safetensors", "ema.safetensors"])
def test_diffusers_loads_the_adapter_with_its_scale(
    model: WanModel, tiny_folder: Path, tmp_path: Path, file: str
) -> None:
    def pipelines_velocity(checkpoint: Path) -> torch.Tensor:
        pipeline = WanPipeline.from_pretrained(tiny_folder)
        pipeline.load_lora_weights(str(checkpoint), weight_name=file)
        result: torch.Tensor = pipeline.transformer(latents, timesteps, text.pick(range(4)), return_dict=False)[0]
        return result

    text = embed(model)
    latents = torch.randn((4, 16, 2, 4, 4), generator=torch.Generator().manual_seed(0))
    timesteps = torch.tensor([900.0, 500.0, 100.0, 900.0])
    aligned = model.velocity(latents, timesteps, text.pick(range(4)), text.negative, 1.0)
    with model.base_weights():
        base = model.velocity(latents, timesteps, text.pick(range(4)), text.negative, 1.0)
    assert relative_gap(aligned, base) > 0.05
    right = save_checkpoint(tmp_path / "right", 1, config(tiny_folder), named(model), named(model))
    assert float((pipelines_velocity(right) - aligned).abs().max()) < 1e-4
    # Negative control: metadata with half the alpha halves the adapter.
    wrong = config_for(tiny_folder, lora_rank=4, lora_alpha=4.0)
    halved = save_checkpoint(tmp_path / "wrong", 1, wrong, named(model), named(model))
    assert float((pipelines_velocity(halved) - aligned).abs().max()) > 1e-2


def test_metadata_names_base_model_and_targets(model: WanModel, tiny_folder: Path, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, config(tiny_folder), named(model), None)
    with safe_open(path / "adapter.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["base_model"] == str(tiny_folder)
    lora = json.loads(metadata["lora_adapter_metadata"])
    assert (lora["transformer.r"], lora["transformer.lora_alpha"]) == (4, 8.0)


@torch.no_grad()
def test_all_weights_of_a_fully_trained_model_are_kept(tiny_folder: Path, tmp_path: Path) -> None:
    model = open_model(tiny_folder)
    model.train_all(keep_base=False)
    perturb(model, 0.01)
    path = save_checkpoint(tmp_path, 1, config(tiny_folder, adapter="full"), named(model), None)
    fresh = open_model(tiny_folder)
    fresh.train_all(keep_base=False)
    put_weights(named(fresh), load_weights(path))
    for name, weight in fresh.denoiser.named_parameters():
        assert torch.equal(weight, named(model)[name])
