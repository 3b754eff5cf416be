"""The shipped pocket models are what their card says: real Wan pipelines, small, conditioned by text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from transformers import UMT5EncoderModel

from flash_grpo.config import build_config
from flash_grpo.evaluate import EvaluationSet, evaluate
from flash_grpo.models.base import VideoModel
from flash_grpo.models.pocket import world
from flash_grpo.models.pocket.train import psnr, to_model_range
from flash_grpo.models.registry import BUILT_IN, built_in_folder, load_model
from flash_grpo.models.wan import store_channels_last
from flash_grpo.prompts import Prompt, load_prompts
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter

LIMIT_MB = {"pocket": 40, "pocket-micro": 8}


@pytest.fixture(scope="module")
def pocket() -> VideoModel:
    return load_model(build_config("pocket"))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_is_an_ordinary_diffusers_folder(name: str) -> None:
    pipeline = WanPipeline.from_pretrained(built_in_folder(name), use_safetensors=True, dtype=torch.float32)
    assert isinstance(pipeline.transformer, WanTransformer3DModel)
    assert isinstance(pipeline.vae, AutoencoderKLWan)
    assert isinstance(pipeline.text_encoder, UMT5EncoderModel)
    assert isinstance(pipeline.scheduler, UniPCMultistepScheduler)
    assert pipeline.tokenizer.is_fast
    pipeline.set_progress_bar_config(disable=True)
    video = pipeline("a red circle moving left on a black background", height=32, width=32, num_frames=9,
                     num_inference_steps=2, max_sequence_length=24, output_type="np").frames  # fmt: skip
    assert video.shape == (1, world.FRAMES, world.SIZE, world.SIZE, 3)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_stays_small(name: str) -> None:
    size = sum(file.stat().st_size for file in built_in_folder(name).rglob("*") if file.is_file()) / 2**20
    assert size <= LIMIT_MB[name]


def test_has_the_shapes_that_a_native_wan_loader_demands() -> None:
    folder = built_in_folder("pocket")
    denoiser = json.loads((folder / "transformer" / "config.json").read_text())
    assert denoiser["attention_head_dim"] == 128
    assert (denoiser["text_dim"], denoiser["freq_dim"], denoiser["in_channels"]) == (4096, 256, 16)
    assert denoiser["patch_size"] == [1, 2, 2]
    autoencoder = json.loads((folder / "vae" / "config.json").read_text())
    assert autoencoder["z_dim"] == 16
    assert autoencoder["dim_mult"] == [1, 2, 4, 4]
    assert autoencoder["temperal_downsample"] == [False, True, True]
    assert autoencoder["num_res_blocks"] == 2
    assert 8 <= autoencoder["base_dim"] <= 16


def test_autoencoder_reaches_28_db_on_unseen_clips() -> None:
    folder = built_in_folder("pocket")
    autoencoder = AutoencoderKLWan.from_pretrained(folder, subfolder="vae", dtype=torch.float32)
    store_channels_last(autoencoder)
    clips = torch.stack([to_model_range(clip) for _, clip in world.clips(987, 48, held_out=True)])
    assert psnr(autoencoder, clips) >= 28


def following(model: VideoModel, shown: list[Prompt], judged: list[Prompt], guidance: float = 3.0) -> float:
    """Mean prompt following of videos made for `shown`, judged by the captions of `judged`."""
    config = build_config("pocket", {"guidance_scale": guidance, "evaluation_steps": 12})
    embeddings = model.encode_prompts([p.text for p in shown], "")
    result = evaluate(
        model, config, RewardSet({"prompt_following": 1}), embeddings, EvaluationSet("test", judged, 0), Meter()
    )
    return float(result.scores["prompt_following"].mean())


def test_text_and_guidance_matter(pocket: VideoModel) -> None:
    prompts = load_prompts("pocket:heldout", 64)
    swapped = prompts[1:] + prompts[:1]
    right = following(pocket, prompts, prompts)
    assert 0.40 <= right <= 0.85
    assert following(pocket, swapped, prompts) < right - 0.2, "videos of other prompts must not fit"
    assert following(pocket, prompts, prompts, guidance=1.0) < right, "guidance must help"


def test_card_is_there() -> None:
    for name in BUILT_IN:
        assert Path(built_in_folder(name) / "README.md").is_file()
