"""A linear latent code of the pocket world, which the autoencoder imitates before it finds a better one of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

PATCH = 8


def _first_patches(clips: torch.Tensor) -> torch.Tensor:
    """[B,3,F,H,W] -> [B,1,h,w,3*64]: the patches of frame 0."""
    return _patches(clips[:, :, :1], 1)


def _patches(clips: torch.Tensor, frames: int) -> torch.Tensor:
    """[B,3,T*frames,H,W] -> [B,T,h,w,frames*3*64]."""
    b, c, f, height, width = clips.shape
    grid = clips.reshape(b, c, f // frames, frames, height // PATCH, PATCH, width // PATCH, PATCH)
    return grid.permute(0, 2, 4, 6, 3, 1, 5, 7).reshape(b, f // frames, height // PATCH, width // PATCH, -1)


@dataclass(frozen=True)
class LinearCode:
    """Whitened principal components of 8x8 patches of frame 0 and of 4x8x8 patches of the rest, mutually aligned."""

    first_mean: torch.Tensor
    first_basis: torch.Tensor
    rest_mean: torch.Tensor
    rest_basis: torch.Tensor

    def encode(self, clips: torch.Tensor) -> torch.Tensor:
        """[B,3,1+4n,H,W] in -1..1 -> latents [B,16,1+n,H/8,W/8] of zero mean and unit variance."""
        first = (_first_patches(clips) - self.first_mean) @ self.first_basis
        rest = (_patches(clips[:, :, 1:], 4) - self.rest_mean) @ self.rest_basis
        return torch.cat([first, rest], dim=1).permute(0, 4, 1, 2, 3).contiguous()


def _whitened_basis(samples: torch.Tensor, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    mean = samples.mean(dim=0)
    centred = samples - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(samples))
    return mean, (vectors[:, -channels:] / values[-channels:].sqrt()).flip(1)


def fit_linear_code(clips: torch.Tensor, channels: int = 16) -> LinearCode:
    """Fit the code to clips [N,3,1+4n,H,W] in -1..1.

    The basis of the later chunks is rotated (orthogonal Procrustes) so that a patch that stands still gets nearly the
    same code in both, which keeps a channel's meaning constant over time.
    """
    first = _first_patches(clips).flatten(0, 3)
    rest = _patches(clips[:, :, 1:], 4).flatten(0, 3)
    first_mean, first_basis = _whitened_basis(first, channels)
    rest_mean, rest_basis = _whitened_basis(rest, channels)
    target = (first - first_mean) @ first_basis
    still = (first.repeat(1, 4) - rest_mean) @ rest_basis
    left, _, right = torch.linalg.svd(still.T @ target)
    return LinearCode(first_mean, first_basis, rest_mean, rest_basis @ (left @ right))
