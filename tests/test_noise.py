"""Seeded noise and the spaces it lives in."""

from __future__ import annotations

import itertools

import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.noise import NoiseSpace, gaussian, noise_seed

SHAPE = (16, 3, 8, 8)


def test_every_coordinate_has_its_own_seed() -> None:
    purposes = ("initial", "branch", "shuffle", "evaluation")
    places = list(itertools.product(range(4), range(4), range(4), range(4), purposes))
    seeds = {noise_seed(*place) for place in places}  # type: ignore[arg-type]
    assert len(seeds) == len(places)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert noise_seed(1, 11, 1, 1, "branch") != noise_seed(11, 1, 1, 1, "branch")
    assert noise_seed(1, 2, 3, 4, "branch") == noise_seed(1, 2, 3, 4, "branch")


def test_noise_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = gaussian(SHAPE, 42)
    torch.manual_seed(2)
    assert torch.equal(first, gaussian(SHAPE, 42))
    assert not torch.equal(first, gaussian(SHAPE, 43))
    assert first.dtype == torch.float32


@pytest.mark.parametrize("space", [NoiseSpace("white"), NoiseSpace("lowpass", 2), NoiseSpace("lowpass", 4)])
def test_elements_are_standard_normal(space: NoiseSpace) -> None:
    noise = torch.stack([space.sample(SHAPE, seed) for seed in range(64)])
    assert noise.shape == (64, *SHAPE)
    assert float(noise.mean()) == pytest.approx(0, abs=0.05)
    assert float(noise.std()) == pytest.approx(1, abs=0.05)


def test_lowpass_noise_is_constant_over_blocks_and_time_and_reduces_to_its_coordinates() -> None:
    space = NoiseSpace("lowpass", 4)
    noise = space.sample(SHAPE, 0)
    assert torch.equal(noise[:, :1].expand_as(noise), noise)
    blocks = noise[:, 0].unfold(1, 4, 4).unfold(2, 4, 4)
    assert torch.equal(blocks, blocks[..., :1, :1].expand_as(blocks))
    reduced = space.reduce(noise[None])
    assert reduced.shape == (1, 16, 2, 2)
    assert torch.allclose(reduced[0], noise[:, 0, ::4, ::4], atol=1e-6)
    assert float((noise[:, 0, 0, 0] - noise[:, 0, 0, 4]).abs().min()) > 0  # neighbouring blocks differ
    white = NoiseSpace("white")
    assert white.reduce(noise[None]) is not None and torch.equal(white.reduce(noise[None])[0], noise)


def test_blocks_must_tile_the_latents() -> None:
    NoiseSpace("lowpass", 4).check(SHAPE)
    NoiseSpace("white", 3).check(SHAPE)
    with pytest.raises(InputError, match="lowpass_block 3 does not divide the latent size 8x8"):
        NoiseSpace("lowpass", 3).check(SHAPE)
