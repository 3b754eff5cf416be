"""The Wan adapter against the pipeline it takes apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline

from flash_grpo.errors import InputError
from flash_grpo.models.base import TextEmbeddings, network_cost, without_padding
from flash_grpo.models.registry import load_model
from flash_grpo.models.wan import WanModel
from tests.tiny import CAPTIONS, NEGATIVE, config_for, embed, gradient, open_model, perturb, relative_gap

TIMESTEPS = torch.tensor([900.0, 500.0, 100.0, 900.0])


def latents(seed: int = 0) -> torch.Tensor:
    return torch.randn((4, 16, 2, 4, 4), generator=torch.Generator().manual_seed(seed))


def test_tokens_are_counted_before_the_prompt_is_cut(tiny_folder: Path) -> None:
    model = open_model(tiny_folder)
    counts = model.token_counts([CAPTIONS[0], CAPTIONS[0] + " and a blue square" * 8, "  " + CAPTIONS[0]])
    assert counts[0] == counts[2] <= model.max_sequence_length < counts[1]
    embeddings = embed(model)
    assert [len(row) for row in embeddings.prompts] == model.token_counts(CAPTIONS)
    model.free_text_encoder()
    assert model.token_counts(CAPTIONS[:1]) == counts[:1]


def velocities(model: WanModel, text: TextEmbeddings, guidance: float = 3.0) -> torch.Tensor:
    return model.velocity(latents(), TIMESTEPS, text.pick(range(4)), text.negative, guidance)


@pytest.fixture(scope="module")
def pipeline(tiny_folder: Path) -> WanPipeline:
    loaded = WanPipeline.from_pretrained(tiny_folder)
    loaded.set_progress_bar_config(disable=True)
    return loaded


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> WanModel:
    return open_model(tiny_folder)


@torch.no_grad()
def test_prompts_are_encoded_as_the_pipeline_does(pipeline: WanPipeline, model: WanModel) -> None:
    positive, negative = pipeline.encode_prompt(list(CAPTIONS), NEGATIVE, max_sequence_length=24)
    text = embed(model)
    assert torch.allclose(text.pick(range(4)), positive, atol=1e-6)
    assert torch.allclose(text.negative, negative[:1], atol=1e-6)
    assert len(text.prompts[0]) < 24  # kept without padding
    assert torch.equal(text.pick([2, 0]), text.pick(range(4))[[2, 0]])


def test_padding_is_cut_and_put_back() -> None:
    padded = torch.zeros(2, 5, 3)
    padded[0, :2], padded[1, :5] = 1.0, 2.0
    rows = without_padding(padded)
    assert [len(row) for row in rows] == [2, 5]
    assert torch.equal(TextEmbeddings(rows, padded[:1]).pick([0, 1]), padded)


@torch.no_grad()
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_the_velocity_is_the_guided_output_of_the_denoiser(
    pipeline: WanPipeline, model: WanModel, guidance: float
) -> None:
    positive, negative = pipeline.encode_prompt(list(CAPTIONS), [NEGATIVE] * 4, max_sequence_length=24)
    denoise = pipeline.transformer
    wanted = denoise(latents(), TIMESTEPS, positive, return_dict=False)[0]
    if guidance > 1:
        plain = denoise(latents(), TIMESTEPS, negative, return_dict=False)[0]
        wanted = plain + guidance * (wanted - plain)
    assert torch.allclose(velocities(model, embed(model), guidance), wanted, atol=1e-5)
    assert not torch.allclose(velocities(model, embed(model), guidance + 0.5), wanted, atol=1e-2)


@torch.no_grad()
def test_bfloat16_stays_as_close_to_the_pipeline_as_the_pipeline_to_float32(tiny_folder: Path) -> None:
    half: Any = load_model(config_for(tiny_folder, dtype="bfloat16"))
    full = open_model(tiny_folder)
    pipeline = WanPipeline.from_pretrained(tiny_folder, dtype=torch.bfloat16)
    positive, _ = pipeline.encode_prompt(list(CAPTIONS), NEGATIVE, max_sequence_length=24)
    theirs = pipeline.transformer(latents().bfloat16(), TIMESTEPS, positive, return_dict=False)[0].float()
    exact = velocities(full, embed(full), 1.0)
    text = half.encode_prompts(CAPTIONS, NEGATIVE)
    ours = half.velocity(latents(), TIMESTEPS, text.pick(range(4)), text.negative, 1.0)
    assert ours.dtype == torch.float32
    assert rms(ours - exact) < 1.5 * rms(theirs - exact)
    assert rms(theirs - exact) > 1e-4  # the comparison can tell precisions apart
    # Too small to show on a tiny network: what diffusers keeps in float32 stays so.
    assert half.denoiser.scale_shift_table.dtype == half.denoiser.rope.freqs_cos.dtype == torch.float32
    assert half.denoiser.proj_out.weight.dtype == torch.bfloat16


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_bfloat16_trains_a_float32_adapter(tiny_folder: Path) -> None:
    half = load_model(config_for(tiny_folder, dtype="bfloat16"))
    half.add_adapter(4, 8.0, ["to_q"], "gaussian")
    assert {weight.dtype for _, weight in half.trainable()} == {torch.float32}
    text = half.encode_prompts(CAPTIONS, NEGATIVE)
    half.velocity(latents(), TIMESTEPS, text.pick(range(4)), text.negative, 3.0).square().mean().backward()
    assert all(weight.grad is not None for _, weight in half.trainable())


@torch.no_grad()
def test_frames_are_the_pipelines(pipeline: WanPipeline, model: WanModel) -> None:
    noise = latents()[:2]
    arguments = {
        "prompt": list(CAPTIONS[:2]), "negative_prompt": [NEGATIVE] * 2, "height": 32, "width": 32, "num_frames": 5,
        "num_inference_steps": 4, "guidance_scale": 3.0, "max_sequence_length": 24,
    }  # fmt: skip
    final = pipeline(**arguments, latents=noise.clone(), output_type="latent").frames
    video = pipeline(**arguments, latents=noise.clone(), output_type="pt").frames
    frames = model.decode(final)
    assert frames.shape == (2, 5, 3, 32, 32) and frames.dtype == torch.float32
    assert float((frames - video).abs().max()) < 1e-3
    assert float((model.decode(final.roll(1, 0)) - video).abs().max()) > 1e-2
    assert torch.allclose(model.decode(final[:1]), frames[:1], atol=1e-5)  # a video does not depend on its neighbours


def test_latent_shapes(model: WanModel) -> None:
    assert model.latent_shape(5, 32, 48) == (16, 2, 4, 6)
    assert model.latent_shape(81, 480, 832) == (16, 21, 60, 104)
    with pytest.raises(InputError, match="must be multiples of 16 and 16, got 40x32"):
        model.latent_shape(5, 40, 32)


def test_a_fresh_adapter_changes_nothing_and_a_trained_one_does(tiny_folder: Path) -> None:
    base = open_model(tiny_folder)
    plain = velocities(base, embed(base))
    fresh = open_model(tiny_folder, adapter=0.0)
    assert torch.allclose(velocities(fresh, embed(fresh)), plain, atol=1e-6)
    trained = open_model(tiny_folder, adapter=0.05)
    assert relative_gap(velocities(trained, embed(trained)), plain) > 1e-2


def test_the_adapter_is_all_that_trains(tiny_folder: Path) -> None:
    model = open_model(tiny_folder, adapter=0.0, rank=4)
    named = dict(model.trainable())
    assert len(named) == 2 * 4 * 2 * 2  # layers x projections x (self and cross attention) x (A and B)
    assert all("lora_" in name for name in named)
    assert all(4 in weight.shape for weight in named.values())
    text = embed(model)
    velocities(model, text).square().mean().backward()
    frozen = [weight for weight in model.denoiser.parameters() if not weight.requires_grad]
    assert frozen and all(weight.grad is None for weight in frozen)


@pytest.mark.parametrize("init", ["gaussian", "kaiming"])
def test_lora_b_starts_at_zero_for_every_init(tiny_folder: Path, init: str) -> None:
    model = open_model(tiny_folder)
    model.add_adapter(4, 8.0, ["to_q", "ffn.net.2"], init)
    for name, weight in model.trainable():
        assert bool((weight == 0).all()) == ("lora_B" in name)


@pytest.mark.parametrize("targets", [["to_qq"], ["to_q", "norm_q"], []])
def test_targets_that_name_no_layer_are_refused(tiny_folder: Path, targets: list[str]) -> None:
    with pytest.raises(InputError, match="lora_targets .* name no linear layer"):
        open_model(tiny_folder).add_adapter(4, 8.0, targets, "gaussian")


@torch.no_grad()
@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_the_base_model_is_at_hand_while_training(tiny_folder: Path, adapter: str) -> None:
    model = open_model(tiny_folder)
    text = embed(model)
    plain = velocities(model, text)
    if adapter == "lora":
        model.add_adapter(4, 8.0, ["to_q", "to_v"], "gaussian")
    else:
        model.train_all(keep_base=True)
    perturb(model, 0.05)
    aligned = velocities(model, text)
    assert relative_gap(aligned, plain) > 1e-2
    with model.base_weights():
        assert torch.equal(velocities(model, text), plain)
    assert torch.equal(velocities(model, text), aligned)
    with pytest.raises(KeyError), model.base_weights():
        raise KeyError
    assert torch.equal(velocities(model, text), aligned)  # restored after an error too


def test_the_base_model_is_gone_without_a_copy(tiny_folder: Path) -> None:
    model = open_model(tiny_folder)
    model.train_all(keep_base=False)
    assert all(weight.requires_grad for weight in model.denoiser.parameters())
    with pytest.raises(RuntimeError, match="the base model's weights are gone"), model.base_weights():
        pass


@pytest.mark.parametrize("full", [False, True])
def test_gradient_checkpointing_gives_the_same_gradient(tiny_folder: Path, full: bool) -> None:
    gradients = []
    for checkpointed in (False, True):
        model = open_model(tiny_folder, None if full else 0.05)
        if full:
            model.train_all(keep_base=False)
        if checkpointed:
            model.enable_gradient_checkpointing()
        assert bool(model.denoiser.is_gradient_checkpointing) == checkpointed
        velocities(model, embed(model)).square().mean().backward()
        gradients.append(gradient(model))
    assert float(gradients[0].norm()) > 0
    assert relative_gap(gradients[1], gradients[0]) < 1e-5


def test_the_text_encoder_leaves_memory(tiny_folder: Path) -> None:
    model = open_model(tiny_folder)
    embed(model)
    model.free_text_encoder()
    assert model.pipeline.text_encoder is None
    with pytest.raises(RuntimeError, match="the text encoder was freed"):
        embed(model)


def test_a_later_generation_is_refused(tiny_folder: Path) -> None:
    pipeline = WanPipeline.from_pretrained(tiny_folder, expand_timesteps=True)
    with pytest.raises(InputError, match="this is a Wan 2.2 pipeline"):
        WanModel(pipeline, torch.device("cpu"), torch.float32, 24)


def test_a_guidance_pair_counts_two() -> None:
    assert network_cost(8, 1.0) == 8
    assert network_cost(8, 3.0) == 16
