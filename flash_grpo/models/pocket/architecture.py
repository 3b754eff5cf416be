"""The pocket model's parts: tokenizer, text encoder, denoiser, autoencoder, scheduler; in a full and a micro size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from flash_grpo.models.pocket import world

LATENT_CHANNELS = 16
FLOW_SHIFT = 3.0
MAX_SEQUENCE_LENGTH = 24


@dataclass(frozen=True)
class Size:
    """Widths of one variant; `full` obeys the shapes ComfyUI's native Wan loader demands, `micro` need not."""

    heads: int
    head_dim: int
    layers: int
    ffn_dim: int
    text_dim: int
    text_heads: int
    autoencoder_width: int
    residual_blocks: int


SIZES = {
    "full": Size(
        heads=2,
        head_dim=128,
        layers=4,
        ffn_dim=1024,
        text_dim=4096,
        text_heads=2,
        autoencoder_width=8,
        residual_blocks=2,
    ),
    "micro": Size(
        heads=2, head_dim=32, layers=2, ffn_dim=128, text_dim=128, text_heads=2, autoencoder_width=4, residual_blocks=1
    ),
}


def vocabulary() -> list[str]:
    """Every word a caption can hold, in a fixed order."""
    words = ["a", "an", "and", "on", "background", "moving", "standing", "still"]
    for group in (
        world.SUBJECT_COLORS,
        world.BACKGROUND_COLORS,
        world.SHAPES,
        world.SIZES,
        world.DIRECTIONS,
        world.SPEEDS,
    ):
        words.extend(group)
    return words


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A fast word-level tokenizer over the world's vocabulary; unknown words become <unk>."""
    words = ["<pad>", "</s>", "<unk>", *vocabulary()]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=MAX_SEQUENCE_LENGTH,
    )


def build_text_encoder(size: Size, seed: int = 0) -> UMT5EncoderModel:
    """A two-layer UMT5 encoder as wide as the denoiser's text input, with tiny heads; it stays as initialised.

    Random embeddings keep words nearly orthogonal, and the relative position biases are set so that one head gathers
    the words before and one the words after: a word then knows its own phrase, which is all this grammar needs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = UMT5EncoderModel(
            UMT5Config(
                vocab_size=64,
                d_model=size.text_dim,
                d_kv=16,
                d_ff=32,
                num_layers=2,
                num_heads=size.text_heads,
                relative_attention_num_buckets=32,
                relative_attention_max_distance=32,
                dropout_rate=0.0,
                pad_token_id=0,
                eos_token_id=1,
                tie_word_embeddings=False,
            )
        )
    before = -0.5 * torch.arange(16.0)
    away = torch.full((16,), -4.0)
    for block in encoder.encoder.block:
        bias = block.layer[0].SelfAttention.relative_attention_bias.weight.data
        bias[:, 0::2] = torch.cat([before, away])[:, None]
        bias[:, 1::2] = torch.cat([away, before])[:, None]
    return encoder.eval().requires_grad_(False)


def build_denoiser(size: Size) -> WanTransformer3DModel:
    """A small `WanTransformer3DModel` for text to video."""
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=size.heads,
        attention_head_dim=size.head_dim,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        text_dim=size.text_dim,
        freq_dim=256,
        ffn_dim=size.ffn_dim,
        num_layers=size.layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=64,
    )


def build_autoencoder(size: Size) -> AutoencoderKLWan:
    """A narrow `AutoencoderKLWan` with Wan 2.1's layout."""
    return AutoencoderKLWan(
        base_dim=size.autoencoder_width,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=size.residual_blocks,
        attn_scales=[],
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
    )


def build_scheduler() -> UniPCMultistepScheduler:
    """The UniPC flow scheduler that Wan pipelines ship with."""
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=FLOW_SHIFT)
