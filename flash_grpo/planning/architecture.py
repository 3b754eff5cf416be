"""Sizes of a Wan pipeline from its configurations: parameters, floating-point operations. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from flash_grpo.errors import InputError

BUILT_IN = {"pocket": "weights", "pocket-micro": "micro"}
WORD_LEVEL_VOCABULARY = 10_000
"""Below this many entries a vocabulary holds whole words, not pieces of words."""


class Linear(NamedTuple):
    """A linear layer with bias; `over` says what it is applied to: video tokens, text tokens, or once per video."""

    name: str
    inputs: int
    outputs: int
    over: Literal["video", "text", "once"]

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs + 1) * self.outputs


@dataclass(frozen=True)
class Denoiser:
    """Sizes of a `WanTransformer3DModel` for text to video."""

    layers: int
    heads: int
    head_dim: int
    ffn: int
    in_channels: int
    out_channels: int
    text_dim: int
    freq_dim: int
    patch: tuple[int, int, int]
    cross_attn_norm: bool

    @property
    def width(self) -> int:
        """Size of the hidden state of one token."""
        return self.heads * self.head_dim

    def linears(self) -> tuple[Linear, ...]:
        """Every linear layer."""
        return _linears(self)

    def _each_linear(self) -> Iterator[Linear]:
        d = self.width
        embedder = "condition_embedder."
        yield Linear(embedder + "time_embedder.linear_1", self.freq_dim, d, "once")
        yield Linear(embedder + "time_embedder.linear_2", d, d, "once")
        yield Linear(embedder + "time_proj", d, 6 * d, "once")
        yield Linear(embedder + "text_embedder.linear_1", self.text_dim, d, "text")
        yield Linear(embedder + "text_embedder.linear_2", d, d, "text")
        for layer in range(self.layers):
            block = f"blocks.{layer}."
            for attention, memory in (("attn1.", "video"), ("attn2.", "text")):
                yield Linear(f"{block}{attention}to_q", d, d, "video")
                yield Linear(f"{block}{attention}to_k", d, d, "text" if memory == "text" else "video")
                yield Linear(f"{block}{attention}to_v", d, d, "text" if memory == "text" else "video")
                yield Linear(f"{block}{attention}to_out.0", d, d, "video")
            yield Linear(block + "ffn.net.0.proj", d, self.ffn, "video")
            yield Linear(block + "ffn.net.2", self.ffn, d, "video")
        yield Linear("proj_out", d, self.out_channels * prod(self.patch), "video")

    def parameters(self) -> int:
        """All parameters."""
        d = self.width
        patches = (self.in_channels * prod(self.patch) + 1) * d
        norms = self.layers * 4 * d + (self.layers * 2 * d if self.cross_attn_norm else 0)
        return patches + norms + self._tables() + sum(layer.parameters for layer in self.linears())

    def float32_parameters(self) -> int:
        """Parameters that diffusers keeps in float32 whatever the model's precision: norms, tables, time embedding."""
        time = sum(layer.parameters for layer in self.linears() if ".time_embedder." in layer.name)
        return time + self._tables() + (self.layers * 2 * self.width if self.cross_attn_norm else 0)

    def _tables(self) -> int:
        return (6 * self.layers + 2) * self.width

    def targeted(self, targets: Sequence[str]) -> tuple[Linear, ...]:
        """Linear layers that an adapter of these targets changes; InputError names a target that fits none."""
        return _targeted(self, tuple(targets))

    def lora_parameters(self, rank: int, targets: Sequence[str]) -> int:
        """Parameters of a LoRA adapter."""
        return sum(rank * (layer.inputs + layer.outputs) for layer in self.targeted(targets))

    def flops(self, tokens: int, text_tokens: int) -> float:
        """Floating-point operations of one forward over one video: 2 per weight and token, and attention."""
        applied = {"video": tokens, "text": text_tokens, "once": 1}
        linear = sum(2.0 * layer.inputs * layer.outputs * applied[layer.over] for layer in self.linears())
        attention = 4.0 * tokens * (tokens + text_tokens) * self.width * self.layers
        return linear + attention + 2.0 * tokens * self.in_channels * prod(self.patch) * self.width


# Advice plans hundreds of variants of one model.
@lru_cache(maxsize=8)
def _linears(denoiser: Denoiser) -> tuple[Linear, ...]:
    return tuple(denoiser._each_linear())


@lru_cache(maxsize=8)
def _targeted(denoiser: Denoiser, targets: tuple[str, ...]) -> tuple[Linear, ...]:
    layers = denoiser.linears()
    missing = [target for target in targets if not any(_fits(layer.name, target) for layer in layers)]
    if missing or not targets:
        raise InputError(
            f"lora_targets {missing or list(targets)} name no linear layer of this model; "
            "use for example to_q or ffn.net.2"
        )
    return tuple(layer for layer in layers if any(_fits(layer.name, target) for target in targets))


def _fits(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


class Convolution(NamedTuple):
    """A convolution; `frames` per latent frame and `scale` (output pixels per latent pixel and side) where it runs."""

    inputs: int
    outputs: int
    kernel: tuple[int, int, int]
    frames: int
    scale: int
    cached: bool

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs * prod(self.kernel) + 1) * self.outputs


@dataclass(frozen=True)
class Autoencoder:
    """Sizes of an `AutoencoderKLWan` of the Wan 2.1 layout."""

    base: int
    decoder_base: int
    latent_channels: int
    multipliers: tuple[int, ...]
    residual_blocks: int
    temporal: tuple[bool, ...]
    in_channels: int
    out_channels: int

    @property
    def spatial_factor(self) -> int:
        """Pixels per latent pixel and side."""
        return int(2 ** (len(self.multipliers) - 1))

    @property
    def temporal_factor(self) -> int:
        """Frames per latent frame, the first one aside."""
        return int(2 ** sum(self.temporal))

    def decoder(self) -> list[Convolution]:
        """Convolutions of the decoder, attention's 1x1 ones included, in order."""
        widths = [self.decoder_base * m for m in (self.multipliers[-1], *self.multipliers[::-1])]
        upsamplings = self.temporal[::-1]
        found = [Convolution(self.latent_channels, widths[0], (3, 3, 3), 1, 1, True)]
        found += _residual(widths[0], widths[0], 1, 1) + _attention(widths[0]) + _residual(widths[0], widths[0], 1, 1)
        frames, scale = 1, 1
        for stage, (before, after) in enumerate(pairwise(widths)):
            inputs = before // 2 if stage else before
            for _ in range(self.residual_blocks + 1):
                found += _residual(inputs, after, frames, scale)
                inputs = after
            if stage < len(self.multipliers) - 1:
                if upsamplings[stage]:
                    found.append(Convolution(after, 2 * after, (3, 1, 1), frames, scale, True))
                    frames *= 2
                scale *= 2
                found.append(Convolution(after, after // 2, (1, 3, 3), frames, scale, False))
        found.append(Convolution(widths[-1], self.out_channels, (3, 3, 3), frames, scale, True))
        return found

    def parameters(self) -> int:
        """All parameters of encoder and decoder."""
        z = self.latent_channels
        between = (2 * z + 1) * 2 * z + (z + 1) * z
        widths = [self.decoder_base * m for m in (self.multipliers[-1], *self.multipliers[::-1])]
        norms = 5 * widths[0] + widths[-1]
        for stage, (before, after) in enumerate(pairwise(widths)):
            norms += (before // 2 if stage else before) + (2 * self.residual_blocks + 1) * after
        decoder = norms + sum(layer.parameters for layer in self.decoder())
        return between + decoder + self._encoder_parameters()

    def _encoder_parameters(self) -> int:
        widths = [self.base * m for m in (1, *self.multipliers)]
        total = (27 * self.in_channels + 1) * widths[0]
        for stage, (before, after) in enumerate(pairwise(widths)):
            inputs = before
            for _ in range(self.residual_blocks):
                total += inputs + after + sum(c.parameters for c in _residual(inputs, after, 1, 1))
                inputs = after
            if stage < len(self.multipliers) - 1:
                total += (9 * after + 1) * after + ((3 * after + 1) * after if self.temporal[stage] else 0)
        last = widths[-1]
        middle = 4 * last + last + sum(c.parameters for c in 2 * _residual(last, last, 1, 1) + _attention(last))
        return total + middle + last + (27 * last + 1) * 2 * self.latent_channels

    def decode_flops(self, latent_frames: int, latent_pixels: int) -> float:
        """Floating-point operations to decode one video; the first latent frame gives one frame, not several."""
        total = 0.0
        for layer in self.decoder():
            doubles_frames = layer.kernel == (3, 1, 1)  # the first latent frame skips it
            frames = layer.frames * (latent_frames - 1) + (0 if doubles_frames else 1)
            total += 2.0 * layer.inputs * layer.outputs * prod(layer.kernel) * frames * latent_pixels * layer.scale**2
        attention = 4.0 * latent_pixels**2 * self.decoder_base * self.multipliers[-1] * latent_frames
        return total + attention + 2.0 * self.latent_channels**2 * latent_frames * latent_pixels


def _residual(inputs: int, outputs: int, frames: int, scale: int) -> list[Convolution]:
    block = [
        Convolution(inputs, outputs, (3, 3, 3), frames, scale, True),
        Convolution(outputs, outputs, (3, 3, 3), frames, scale, True),
    ]
    if inputs != outputs:
        block.append(Convolution(inputs, outputs, (1, 1, 1), frames, scale, False))
    return block


def _attention(width: int) -> list[Convolution]:
    return [
        Convolution(width, 3 * width, (1, 1, 1), 1, 1, False),
        Convolution(width, width, (1, 1, 1), 1, 1, False),
    ]


@dataclass(frozen=True)
class TextEncoder:
    """Sizes of a `UMT5EncoderModel`."""

    layers: int
    width: int
    heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    buckets: int
    gated: bool

    def parameters(self) -> int:
        """All parameters."""
        inner = self.heads * self.head_dim
        layer = 4 * self.width * inner + (3 if self.gated else 2) * self.width * self.ffn + 2 * self.width
        return (self.vocabulary + 1) * self.width + self.layers * (layer + self.buckets * self.heads)

    def tokens(self, text: str, longest: int) -> int:
        """About how many tokens a text has, its end included."""
        per_word = 1.0 if self.vocabulary < WORD_LEVEL_VOCABULARY else 1.35
        return min(longest, int(per_word * len(text.split())) + 1)

    def flops(self, tokens: int) -> float:
        """Floating-point operations to encode one text padded to `tokens`."""
        layer = 4 * self.width * self.heads * self.head_dim + (3 if self.gated else 2) * self.width * self.ffn
        return 2.0 * self.layers * tokens * (layer + 2 * tokens * self.heads * self.head_dim)


@dataclass(frozen=True)
class Pipeline:
    """The networks of a text-to-video pipeline; `built_in` marks the small ones made for a CPU."""

    denoiser: Denoiser
    autoencoder: Autoencoder
    text_encoder: TextEncoder
    built_in: bool = False

    def latent_shape(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Channels, latent frames, latent height and width, as `WanModel.latent_shape`."""
        spatial, patch = self.autoencoder.spatial_factor, self.denoiser.patch
        if height % (spatial * patch[1]) or width % (spatial * patch[2]):
            raise InputError(
                f"height and width must be multiples of {spatial * patch[1]} and {spatial * patch[2]}, "
                f"got {height}x{width}"
            )
        latent_frames = (frames - 1) // self.autoencoder.temporal_factor + 1
        return self.denoiser.in_channels, latent_frames, height // spatial, width // spatial


def load_pipeline(model: str) -> Pipeline:
    """Read a built-in model, a local pipeline folder, or one of the shipped configurations of published pipelines.

    Raises InputError: another hub id, or a folder that is no Wan 2.1 text-to-video pipeline.
    """
    if model in BUILT_IN:
        folder = Path(str(resources.files("flash_grpo") / "models" / "pocket" / BUILT_IN[model]))
        return _pipeline(model, lambda part: _read(folder / part / "config.json"), built_in=True)
    if Path(model).is_dir():
        return _pipeline(model, _folder_reader(Path(model)), built_in=False)
    published = shipped()
    if model not in published:
        raise InputError(
            f"cannot plan for {model!r}: its configuration is not here; expected a built-in name "
            f"({', '.join(BUILT_IN)}), the folder of a diffusers WanPipeline, or {' or '.join(published)}"
        )
    return _pipeline(model, lambda part: published[model][part], built_in=False)


@lru_cache(maxsize=1)
def shipped() -> dict[str, dict[str, Any]]:
    """Configurations of published pipelines, by hub id."""
    text = (resources.files("flash_grpo.planning") / "data" / "wan2.1.yaml").read_text(encoding="utf-8")
    pipelines: dict[str, dict[str, Any]] = yaml.safe_load(text)["pipelines"]
    return pipelines


def _folder_reader(folder: Path) -> Callable[[str], Mapping[str, Any]]:
    index = _read(folder / "model_index.json")
    if index.get("_class_name") != "WanPipeline" or index.get("transformer_2", [None, None])[0] is not None:
        raise InputError(f"{folder} is a {index.get('_class_name')}; expected a WanPipeline (Wan 2.1 text to video)")
    return lambda part: _read(folder / part / "config.json")


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file} is missing; expected the folder of a diffusers pipeline") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file} ({error}); expected the folder of a diffusers pipeline") from error
    if not isinstance(content, dict):
        raise InputError(f"expected an object in {file}, got {type(content).__name__}")
    return content


def _pipeline(model: str, read: Callable[[str], Mapping[str, Any]], built_in: bool) -> Pipeline:
    try:
        return Pipeline(
            _denoiser(read("transformer")), _autoencoder(read("vae")), _text_encoder(read("text_encoder")), built_in
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot plan for {model!r}: its configurations lack or garble {error}") from error


def _denoiser(config: Mapping[str, Any]) -> Denoiser:
    if (
        config.get("_class_name") != "WanTransformer3DModel"
        or config.get("image_dim")
        or config.get("added_kv_proj_dim")
    ):
        raise InputError("the denoiser is not that of a Wan text-to-video pipeline; plans know no other")
    first, second, third = config.get("patch_size", (1, 2, 2))
    return Denoiser(
        layers=int(config["num_layers"]),
        heads=int(config["num_attention_heads"]),
        head_dim=int(config["attention_head_dim"]),
        ffn=int(config["ffn_dim"]),
        in_channels=int(config["in_channels"]),
        out_channels=int(config.get("out_channels") or config["in_channels"]),
        text_dim=int(config["text_dim"]),
        freq_dim=int(config.get("freq_dim", 256)),
        patch=(int(first), int(second), int(third)),
        cross_attn_norm=bool(config.get("cross_attn_norm", True)),
    )


def _autoencoder(config: Mapping[str, Any]) -> Autoencoder:
    if config.get("_class_name") != "AutoencoderKLWan" or config.get("is_residual") or config.get("attn_scales"):
        raise InputError("the autoencoder is not laid out as that of Wan 2.1; plans know no other")
    base = int(config["base_dim"])
    return Autoencoder(
        base=base,
        decoder_base=int(config.get("decoder_base_dim") or base),
        latent_channels=int(config["z_dim"]),
        multipliers=tuple(int(m) for m in config.get("dim_mult", (1, 2, 4, 4))),
        residual_blocks=int(config.get("num_res_blocks", 2)),
        temporal=tuple(bool(t) for t in config.get("temperal_downsample", (False, True, True))),
        in_channels=int(config.get("in_channels", 3)),
        out_channels=int(config.get("out_channels", 3)),
    )


def _text_encoder(config: Mapping[str, Any]) -> TextEncoder:
    return TextEncoder(
        layers=int(config["num_layers"]),
        width=int(config["d_model"]),
        heads=int(config["num_heads"]),
        head_dim=int(config["d_kv"]),
        ffn=int(config["d_ff"]),
        vocabulary=int(config["vocab_size"]),
        buckets=int(config.get("relative_attention_num_buckets", 32)),
        gated=str(config.get("feed_forward_proj", "gated-gelu")).startswith("gated"),
    )
