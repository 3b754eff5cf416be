"""The Wan 2.1 text-to-video family: any `WanPipeline` folder or hub id behind the `VideoModel` protocol."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import WanPipeline
from diffusers.pipelines.wan.pipeline_wan import prompt_clean
from peft import LoraConfig
from torch import nn

from flash_grpo.errors import InputError
from flash_grpo.models.base import TextEmbeddings, without_padding


def store_channels_last(module: nn.Module) -> None:
    """Keep convolution weights channels-last: about four times faster on CPUs, and never slower on GPUs."""
    for part in module.modules():
        if isinstance(part, nn.Conv3d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last_3d)
        elif isinstance(part, nn.Conv2d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)


class WanModel:
    """A `WanPipeline` taken apart: denoiser, autoencoder, text encoder, scheduler."""

    def __init__(
        self,
        pipeline: WanPipeline,
        device: torch.device,
        dtype: torch.dtype,
        max_sequence_length: int,
        text_device: torch.device | None = None,
    ) -> None:
        if getattr(pipeline, "transformer_2", None) is not None or pipeline.config.get("expand_timesteps"):
            raise InputError("this is a Wan 2.2 pipeline; expected Wan 2.1 text to video (one denoiser)")
        self.pipeline: Any = pipeline
        self.device = device
        self.text_device = text_device or device
        self.dtype = dtype
        self.max_sequence_length = max_sequence_length
        self.scheduler = pipeline.scheduler
        # Loaded in their precision already; casting would also round what diffusers keeps in float32 (norms, rope).
        self.denoiser: Any = pipeline.transformer.to(device).requires_grad_(False).eval()
        self.autoencoder: Any = pipeline.vae.to(device).requires_grad_(False).eval()
        store_channels_last(self.autoencoder)
        self.network: Any = self.denoiser
        self._has_adapter = False
        self._checkpointing = False
        self._base: Any = None
        self._use_base = False

    @torch.no_grad()
    def encode_prompts(self, texts: Sequence[str], negative: str) -> TextEmbeddings:
        """Encode prompts and the negative prompt; embeddings rest on the CPU until picked."""
        if self.pipeline.text_encoder is None:
            raise RuntimeError("the text encoder was freed; encode all prompts before")
        self.pipeline.text_encoder.to(self.text_device).eval()
        prompts: list[torch.Tensor] = []
        for start in range(0, len(texts), 32):
            prompts.extend(without_padding(self._encode(list(texts[start : start + 32]))))
        return TextEmbeddings(prompts, self._encode([negative]))

    def _encode(self, texts: list[str]) -> torch.Tensor:
        embeddings, _ = self.pipeline.encode_prompt(
            texts,
            do_classifier_free_guidance=False,
            max_sequence_length=self.max_sequence_length,
            device=self.text_device,
        )
        return torch.as_tensor(embeddings).to("cpu", self.dtype)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each prompt, special ones included, before `max_sequence_length` cuts; needs no text encoder."""
        cleaned = [prompt_clean(text) for text in texts]
        counts: list[int] = []
        for start in range(0, len(cleaned), 1024):
            part = cleaned[start : start + 1024]
            rows = self.pipeline.tokenizer(part, add_special_tokens=True, verbose=False).input_ids
            counts.extend(len(row) for row in rows)
        return counts

    def free_text_encoder(self) -> None:
        """Drop the text encoder."""
        self.pipeline.text_encoder = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def latent_shape(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Channels, latent frames, latent height and width; the autoencoder is 8x in space and 4x in time."""
        patch = self.denoiser.config.patch_size
        spatial, temporal = self.pipeline.vae_scale_factor_spatial, self.pipeline.vae_scale_factor_temporal
        if height % (spatial * patch[1]) or width % (spatial * patch[2]):
            raise InputError(
                f"height and width must be multiples of {spatial * patch[1]} and {spatial * patch[2]}, "
                f"got {height}x{width}"
            )
        return self.denoiser.config.in_channels, (frames - 1) // temporal + 1, height // spatial, width // spatial

    def velocity(
        self,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        text: torch.Tensor,
        negative: torch.Tensor,
        guidance: float,
    ) -> torch.Tensor:
        """Guided velocity, float32; the guidance pair runs as one batch."""
        network = self._base if self._use_base and self._base is not None else self.network
        text, negative = text.to(self.device), negative.to(self.device)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            if guidance <= 1:
                return self._forward(network, latents, timesteps, text)
            pair = self._forward(
                network,
                torch.cat([latents, latents]),
                torch.cat([timesteps, timesteps]),
                torch.cat([text, negative.expand(len(text), -1, -1)]),
            )
        conditional, unconditional = pair.chunk(2)
        return unconditional + guidance * (conditional - unconditional)

    def _forward(
        self, network: Any, latents: torch.Tensor, timesteps: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        result: torch.Tensor = network(
            hidden_states=latents.to(self.dtype), timestep=timesteps, encoder_hidden_states=text, return_dict=False
        )[0]
        return result.float()

    @torch.no_grad()
    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents [B, 16, T, h, w] to frames [B, F, 3, H, W] in 0..1 on the CPU."""
        shape = (1, -1, 1, 1, 1)
        config = self.autoencoder.config
        mean = torch.tensor(config.latents_mean, device=self.device).view(shape)
        std = torch.tensor(config.latents_std, device=self.device).view(shape)
        frames: torch.Tensor = self.autoencoder.decode(latents.float() * std + mean, return_dict=False)[0]
        return (frames / 2 + 0.5).clamp(0, 1).transpose(1, 2).float().cpu()

    def add_adapter(self, rank: int, alpha: float, targets: Sequence[str], init: str) -> None:
        """Add a LoRA adapter whose weights are float32 and trainable."""
        names = [name for name, part in self.denoiser.named_modules() if isinstance(part, nn.Linear)]
        missing = [
            target for target in targets if not any(name.endswith(f".{target}") or name == target for name in names)
        ]
        if missing or not targets:
            raise InputError(
                f"lora_targets {missing or list(targets)} name no linear layer of this model; "
                "use for example to_q or ffn.net.2"
            )
        self.denoiser.add_adapter(
            LoraConfig(
                r=rank,
                lora_alpha=alpha,
                target_modules=list(targets),
                init_lora_weights="gaussian" if init == "gaussian" else True,
            )
        )
        self._has_adapter = True
        for _, parameter in self.trainable():
            parameter.data = parameter.data.float()

    def train_all(self, keep_base: bool) -> None:
        """Make every weight of the denoiser trainable; `keep_base` keeps a frozen copy for the KL term."""
        if keep_base:
            self._base = copy.deepcopy(self.denoiser)
        self.denoiser.to(torch.float32).requires_grad_(True)

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Named parameters that train."""
        return ((name, p) for name, p in self.denoiser.named_parameters() if p.requires_grad)

    @contextmanager
    def base_weights(self) -> Iterator[None]:
        """The base model: adapter off, or the kept copy under full fine-tuning."""
        if not self._has_adapter and self._base is None:
            raise RuntimeError("no adapter and no kept copy: the base model's weights are gone")
        if self._has_adapter:
            self.denoiser.disable_adapters()
        self._use_base = True
        try:
            yield
        finally:
            self._use_base = False
            if self._has_adapter:
                self.denoiser.enable_adapters()

    def enable_gradient_checkpointing(self) -> None:
        """Trade a second forward for activation memory."""
        self.denoiser.enable_gradient_checkpointing()
        self._checkpointing = True

    @property
    def backward_cost(self) -> float:
        """Time of a backward in forwards, measured on the pocket model on a CPU (benchmarks/backward_cost.py)."""
        return (0.7 if self._has_adapter else 1.7) + (0.8 if self._checkpointing else 0.0)
