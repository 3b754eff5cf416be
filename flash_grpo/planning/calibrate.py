"""Measure how fast this machine runs a pipeline's networks, with random weights of the same widths."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from math import prod
from statistics import median

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel

from flash_grpo.config import RunConfig
from flash_grpo.models.registry import resolve_device
from flash_grpo.models.wan import store_channels_last
from flash_grpo.planning.architecture import Autoencoder, Denoiser, Pipeline
from flash_grpo.planning.speed import Speed

LAYERS = 2
BUDGET = {"cpu": 4e11, "cuda": 4e13}
"""Floating-point operations of one timed call at most, so that measuring takes seconds."""
REPEATS = 5


def measured_speed(config: RunConfig, pipeline: Pipeline) -> Speed:
    """Time a forward of a few layers and a decode, at the run's sizes or the largest that take about a second."""
    device = resolve_device(config.device)
    if config.threads:
        torch.set_num_threads(config.threads)
    shape = pipeline.latent_shape(config.frames, config.height, config.width)
    with torch.no_grad():
        denoiser = _denoiser_speed(config, pipeline.denoiser, shape, device)
        decoder = _decoder_speed(config, pipeline.autoencoder, shape, device)
    return Speed(denoiser, decoder, f"measured on this machine ({_device_name(device)})", "measured")


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


def _denoiser_speed(
    config: RunConfig, denoiser: Denoiser, shape: tuple[int, int, int, int], device: torch.device
) -> float:
    shallow = dataclasses.replace(denoiser, layers=min(LAYERS, denoiser.layers))

    def flops(size: tuple[int, int, int, int]) -> float:
        return shallow.flops(prod(size[1:]) // prod(denoiser.patch), config.max_sequence_length)

    size = _shrunk(shape, flops, BUDGET[device.type])
    pair = 2 if config.guidance_scale > 1 else 1
    videos = max(1, min(config.rollout_batch, int(BUDGET[device.type] / flops(size) / pair)))
    dtype = getattr(torch, config.dtype)
    network = _random_denoiser(shallow).to(device).eval()
    if dtype != torch.float32:
        network.to(dtype)
    latents = torch.randn((videos, *size), device=device, dtype=dtype)
    text = torch.randn((videos, config.max_sequence_length, denoiser.text_dim), device=device, dtype=dtype)
    timesteps = torch.full((videos * pair,), 500.0, device=device)

    def call() -> object:
        # As `WanModel.velocity`: the guidance pair is joined anew each time, and autocast sorts the precisions out.
        return network(torch.cat([latents] * pair), timesteps, torch.cat([text] * pair), return_dict=False)

    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        seconds = _seconds(call, device)
    return videos * pair * flops(size) / seconds


def _random_denoiser(sizes: Denoiser) -> WanTransformer3DModel:
    return WanTransformer3DModel(
        patch_size=sizes.patch,
        num_attention_heads=sizes.heads,
        attention_head_dim=sizes.head_dim,
        in_channels=sizes.in_channels,
        out_channels=sizes.out_channels,
        text_dim=sizes.text_dim,
        freq_dim=sizes.freq_dim,
        ffn_dim=sizes.ffn,
        num_layers=sizes.layers,
        cross_attn_norm=sizes.cross_attn_norm,
    )


def _decoder_speed(
    config: RunConfig, sizes: Autoencoder, shape: tuple[int, int, int, int], device: torch.device
) -> float:
    network = AutoencoderKLWan(
        base_dim=sizes.base,
        decoder_base_dim=sizes.decoder_base,
        z_dim=sizes.latent_channels,
        dim_mult=list(sizes.multipliers),
        num_res_blocks=sizes.residual_blocks,
        temperal_downsample=list(sizes.temporal),
    )
    network = network.to(device).eval()
    store_channels_last(network)

    def flops(size: tuple[int, int, int, int]) -> float:
        return sizes.decode_flops(size[1], size[2] * size[3])

    size = _shrunk(shape, flops, BUDGET[device.type])
    videos = max(1, min(config.decode_batch, int(BUDGET[device.type] / flops(size))))
    latents = torch.randn((videos, *size), device=device)
    return videos * flops(size) / _seconds(lambda: network.decode(latents, return_dict=False), device)


def _shrunk(
    shape: tuple[int, int, int, int], flops: Callable[[tuple[int, int, int, int]], float], budget: float
) -> tuple[int, int, int, int]:
    """The shape, halved along its longest side until it costs no more than the budget; sides stay even."""
    channels, *sides = shape
    while flops((channels, sides[0], sides[1], sides[2])) > budget and max(sides) > 2:
        longest = sides.index(max(sides))
        sides[longest] = max(2, sides[longest] // 4 * 2)
    return channels, sides[0], sides[1], sides[2]


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """Median time of a call after a first one that warms up."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return median(times[1:])
