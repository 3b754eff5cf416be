# A copy of flash_grpo/native.py, made by `make comfyui-pack`; edit that file instead.
"""Names of Wan's weights in diffusers and in the native files that ComfyUI loads, both ways; imports nothing of ours.

The ComfyUI node pack holds a copy of this file (`make comfyui-pack`), so it stays free of torch and of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LAYERS = {
    "attn1.to_q": "self_attn.q",
    "attn1.to_k": "self_attn.k",
    "attn1.to_v": "self_attn.v",
    "attn1.to_out.0": "self_attn.o",
    "attn2.to_q": "cross_attn.q",
    "attn2.to_k": "cross_attn.k",
    "attn2.to_v": "cross_attn.v",
    "attn2.to_out.0": "cross_attn.o",
    "attn2.add_k_proj": "cross_attn.k_img",
    "attn2.add_v_proj": "cross_attn.v_img",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
}
"""Linear layers of a transformer block, which ComfyUI and diffusers both let an adapter patch."""
_BLOCK = {
    **LAYERS,
    "attn1.norm_q": "self_attn.norm_q",
    "attn1.norm_k": "self_attn.norm_k",
    "attn2.norm_q": "cross_attn.norm_q",
    "attn2.norm_k": "cross_attn.norm_k",
    "attn2.norm_added_k": "cross_attn.norm_k_img",
    "norm2": "norm3",
    "scale_shift_table": "modulation",
}
_TOP = {
    "patch_embedding": "patch_embedding",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "condition_embedder.image_embedder.pos_embed": "img_emb.emb_pos",
    "condition_embedder.image_embedder.norm1": "img_emb.proj.0",
    "condition_embedder.image_embedder.ff.net.0.proj": "img_emb.proj.1",
    "condition_embedder.image_embedder.ff.net.2": "img_emb.proj.3",
    "condition_embedder.image_embedder.norm2": "img_emb.proj.4",
    "proj_out": "head.head",
    "scale_shift_table": "head.modulation",
}
_VAE_TOP = {
    "quant_conv": "conv1",
    "post_quant_conv": "conv2",
    **{
        f"{half}.{ours}": f"{half}.{native}"
        for half in ("encoder", "decoder")
        for ours, native in (
            ("conv_in", "conv1"),
            ("norm_out", "head.0"),
            ("conv_out", "head.2"),
            ("mid_block.resnets.0", "middle.0"),
            ("mid_block.attentions.0", "middle.1"),
            ("mid_block.resnets.1", "middle.2"),
        )
    },
}
_VAE_RESIDUAL = {
    "norm1": "residual.0",
    "conv1": "residual.2",
    "norm2": "residual.3",
    "conv2": "residual.6",
    "conv_shortcut": "shortcut",
}
_UP_STAGE = 4
"""Layers of a stage of the decoder: three residual blocks and what enlarges the picture."""


def native_name(name: str) -> str | None:
    """The native name of a diffusers transformer's weight or layer; None if there is none."""
    return _transformer_name(name, _BLOCK, _TOP)


def diffusers_name(name: str) -> str | None:
    """The diffusers name of a native transformer's weight or layer; None if there is none."""
    return _transformer_name(name, _inverse(_BLOCK), _inverse(_TOP))


def native_vae_name(name: str) -> str | None:
    """The native name of a weight of `AutoencoderKLWan` in Wan 2.1's layout; None if there is none."""
    if match := re.fullmatch(r"encoder\.down_blocks\.(\d+)\.(.+)", name):
        return _put(f"encoder.downsamples.{match[1]}", _residual(match[2], _VAE_RESIDUAL))
    if match := re.fullmatch(r"decoder\.up_blocks\.(\d+)\.(resnets|upsamplers)\.(\d+)\.(.+)", name):
        last = _UP_STAGE - 1
        place = int(match[3]) if match[2] == "resnets" else last
        if (match[2] == "upsamplers") != (place == last):
            return None
        return _put(f"decoder.upsamples.{int(match[1]) * _UP_STAGE + place}", _residual(match[4], _VAE_RESIDUAL))
    return _vae_top(name, _VAE_TOP, _VAE_RESIDUAL)


def diffusers_vae_name(name: str) -> str | None:
    """The diffusers name of a weight of the native `WanVAE`; None if there is none."""
    residual = _inverse(_VAE_RESIDUAL)
    if match := re.fullmatch(r"encoder\.downsamples\.(\d+)\.(.+)", name):
        return _put(f"encoder.down_blocks.{match[1]}", _residual(match[2], residual))
    if match := re.fullmatch(r"decoder\.upsamples\.(\d+)\.(.+)", name):
        stage, place = divmod(int(match[1]), _UP_STAGE)
        part = "upsamplers.0" if place == _UP_STAGE - 1 else f"resnets.{place}"
        return _put(f"decoder.up_blocks.{stage}.{part}", _residual(match[2], residual))
    return _vae_top(name, _inverse(_VAE_TOP), residual)


def renamed(names: Iterable[str], vae: bool = False) -> dict[str, str]:
    """Every diffusers name with its native one; ValueError naming the first that has none."""
    found = {}
    for name in names:
        native = native_vae_name(name) if vae else native_name(name)
        if native is None:
            raise ValueError(f"the weight {name!r} has no native name")
        found[name] = native
    return found


def _transformer_name(name: str, block: Mapping[str, str], top: Mapping[str, str]) -> str | None:
    if match := re.fullmatch(r"(blocks\.\d+)\.(.+)", name):
        return _put(match[1], _replaced(match[2], block))
    return _replaced(name, top)


def _vae_top(name: str, top: Mapping[str, str], residual: Mapping[str, str]) -> str | None:
    """A name outside the stages; the middle's residual blocks have parts with names of their own."""
    for old, new in top.items():
        if name.startswith(f"{old}."):
            return _put(new, _residual(name.removeprefix(f"{old}."), residual))
    return None


def _residual(rest: str, table: Mapping[str, str]) -> str:
    """A residual block's part renamed; the parts of attention and resampling are called alike."""
    return _replaced(rest, table) or rest


def _replaced(name: str, table: Mapping[str, str]) -> str | None:
    """The name with its longest beginning that the table knows replaced, at a dot; None if it knows none."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        new = table.get(".".join(parts[:length]))
        if new is not None:
            return ".".join([new, *parts[length:]])
    return None


def _put(before: str, rest: str | None) -> str | None:
    return None if rest is None else f"{before}.{rest}"


def _inverse(table: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in table.items()}
