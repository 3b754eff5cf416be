"""The pocket model's text encoder as one file gives what diffusers' pipeline gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import WanPipeline

from custom_nodes.comfyui_flash_grpo.logic.pocket_encoder import PocketEncoder, load_encoder
from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from flash_grpo.models.registry import built_in_folder
from flash_grpo_studio.comfyui.pocket import AUTOENCODER, TEXT_ENCODER, export_pocket

LONG = "a small red circle moving slowly left and a large blue square standing still on a white background and a cross"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    export_pocket(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(models: Path) -> PocketEncoder:
    return load_encoder(models / TEXT_ENCODER)


@pytest.mark.parametrize("text", ["a red circle moving left on a black background", "", LONG, "A &amp; zebra\n  jumps"])
def test_prompts_are_encoded_as_the_pipeline_encodes_them(text: str, encoder: PocketEncoder) -> None:
    base = built_in_folder("pocket")
    pipeline = WanPipeline.from_pretrained(base, transformer=None, vae=None, dtype=torch.float32)
    wanted, _ = pipeline.encode_prompt(text, do_classifier_free_guidance=False, max_sequence_length=24)
    torch.testing.assert_close(encoder.encode(text), wanted.float(), rtol=0, atol=1e-5)


def test_words_the_model_does_not_know_are_named(encoder: PocketEncoder) -> None:
    assert encoder.unknown("a red zebra moving left zebra, fast") == ["zebra", ",", "fast"]
    assert encoder.unknown("a red circle") == []


def test_another_file_is_refused(models: Path) -> None:
    with pytest.raises(Problem, match="no text encoder of the pocket model; choose flash-grpo-pocket-text"):
        load_encoder(models / AUTOENCODER)
