"""From a model's name to a model, or to a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.models.registry import BUILT_IN, built_in_folder, load_model, resolve_device
from flash_grpo.models.wan import WanModel
from tests.tiny import config_for


def test_a_folder_is_loaded_on_the_device_and_in_the_precision_asked_for(tiny_folder: Path) -> None:
    model = load_model(config_for(tiny_folder))
    assert isinstance(model, WanModel)
    assert model.device == torch.device("cpu")
    assert not any(weight.requires_grad for weight in model.denoiser.parameters())
    half: Any = load_model(config_for(tiny_folder, dtype="bfloat16"))
    assert half.denoiser.dtype == torch.bfloat16
    assert half.autoencoder.dtype == torch.float32  # decoding in half precision shows


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="device 'cuda:1' is not here, found 0 CUDA devices; use auto or cpu"):
        resolve_device("cuda:1")
    with pytest.raises(InputError, match="unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"):
        resolve_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")


def test_a_folder_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no model_index.json"):
        load_model(config_for(tmp_path))
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    with pytest.raises(InputError, match="is a FluxPipeline; expected a WanPipeline"):
        load_model(config_for(tmp_path))
    for damaged in ("{", "[]"):
        (tmp_path / "model_index.json").write_text(damaged)
        with pytest.raises(InputError, match="cannot read .*model_index.json"):
            load_model(config_for(tmp_path))


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").mkdir()
    with pytest.raises(InputError, match="holds no model_index.json"):
        load_model(config_for(tmp_path))


def test_a_folder_with_a_missing_part_is_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(tiny_folder, folder)
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load model .*expected a built-in name") as caught:
        load_model(config_for(folder))
    assert "\n" not in str(caught.value)


def test_a_folder_with_a_damaged_part_is_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(tiny_folder, folder)
    weights = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot load model") as caught:
        load_model(config_for(folder))
    assert "\n" not in str(caught.value)


def test_a_name_that_is_nothing_is_one_sentence() -> None:
    with pytest.raises(InputError, match="cannot load model 'not a model'"):
        load_model(config_for(Path("not a model")))


def test_built_in_names_have_their_folders_in_the_package() -> None:
    assert {built_in_folder(name).parent.name for name in BUILT_IN} == {"pocket"}
