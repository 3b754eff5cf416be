"""The training script runs from nothing to a pipeline that loads, and its parts do what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import WanPipeline

from flash_grpo.models.pocket import architecture, train, world
from flash_grpo.models.pocket.code import fit_linear_code
from flash_grpo.models.pocket.train import Budget, to_model_range


def clips(seed: int, count: int) -> torch.Tensor:
    return torch.stack([to_model_range(clip) for _, clip in world.clips(seed, count)])


def test_every_stage_runs_and_the_result_is_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in ("autoencoder", "decoder", "denoiser"):
        monkeypatch.setitem(train.BUDGETS, (stage, "micro"), Budget(3, 8, 1e-3))
    monkeypatch.setattr(train, "WARM_UP_STEPS", 2)
    monkeypatch.setattr(train, "CODE_CLIPS", 64)
    monkeypatch.setitem(train.POOL_CAPTIONS, "micro", 16)
    work, output = tmp_path / "work", tmp_path / "pipeline"
    arguments = ["train", "all", "--size", "micro", "--work", str(work), "--output", str(output)]
    monkeypatch.setattr("sys.argv", [*arguments, "--threads", str(torch.get_num_threads())])
    train.main()
    pipeline = WanPipeline.from_pretrained(output, dtype=torch.float32)
    assert len(pipeline.vae.config.latents_std) == architecture.LATENT_CHANNELS
    curves = json.loads((output / "training_curves.json").read_text())
    assert set(curves) == {"autoencoder", "decoder", "denoiser"}
    assert [row["step"] for row in curves["denoiser"]] == [0, 3]
    texts = [file.read_text() for file in output.rglob("*.json")]
    assert not any(str(tmp_path) in text for text in texts), "the shipped folder must not name the machine it came from"


def test_the_linear_code_is_white_and_constant_for_what_stands_still() -> None:
    code = fit_linear_code(clips(1, 400))
    latents = code.encode(clips(2, 200))
    assert latents.shape == (200, 16, 3, 4, 4)
    assert latents.mean().abs() < 0.1
    assert 0.8 < latents.std() < 1.2
    still = clips(3, 1)[:, :, :1].expand(-1, -1, 9, -1, -1)
    moving = torch.stack([to_model_range(world.render((MOVING,), "black"))])
    assert change_over_time(code.encode(still)) < 0.5 * change_over_time(code.encode(moving))


MOVING = world.Track("circle", "red", 6.0, (6.0, 16.0), (2.0, 0.0))


def change_over_time(latents: torch.Tensor) -> float:
    return float(latents.diff(dim=2).abs().mean())


def test_the_loss_is_that_of_velocities() -> None:
    """A denoiser that answers zero is off by noise minus data: the loss is their mean square, about 1 + E[data^2]."""
    torch.manual_seed(0)
    denoiser = architecture.build_denoiser(architecture.SIZES["micro"])
    torch.nn.init.zeros_(denoiser.proj_out.weight)
    torch.nn.init.zeros_(denoiser.proj_out.bias)
    data = torch.full((64, 16, 3, 4, 4), 2.0)
    text = torch.zeros(16, architecture.MAX_SEQUENCE_LENGTH, architecture.SIZES["micro"].text_dim)
    with torch.no_grad():
        assert float(train.flow_matching_loss(denoiser, text, data)) == pytest.approx(5.0, rel=0.02)


def test_the_text_encoder_tells_whose_word_it_is() -> None:
    """The same words bound to other subjects give other features, and the same caption always the same."""
    encoder = architecture.build_text_encoder(architecture.SIZES["micro"])
    one = "a red circle standing still and a blue square standing still on a black background"
    other = "a blue circle standing still and a red square standing still on a black background"
    first, second = train.encode_captions(encoder, [one, other])
    again = train.encode_captions(architecture.build_text_encoder(architecture.SIZES["micro"]), [one])[0]
    assert torch.equal(first, again)
    red_circle, red_square = first[1], second[7]
    assert torch.nn.functional.cosine_similarity(red_circle.float(), red_square.float(), dim=0) < 0.98
