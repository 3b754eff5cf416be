"""Native checkpoints: every name both ways, and what is written gives what the pipeline gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel
from safetensors import safe_open
from safetensors.torch import load_file

from flash_grpo.checkpoint import save_checkpoint, write_pointers
from flash_grpo.config import RunConfig, build_config, dump_config
from flash_grpo.export import export_run
from flash_grpo.export_native import WAN_MEAN, WAN_STD, refuse_unfit, sketch, write_autoencoder, write_denoiser
from flash_grpo.models.pocket import architecture
from flash_grpo.models.registry import built_in_folder, load_model
from flash_grpo.models.wan import WanModel
from flash_grpo.native import diffusers_name, diffusers_vae_name, native_name, native_vae_name, renamed
from flash_grpo.sketch import SAME, likeness
from tests.tiny import perturb

POCKET = built_in_folder("pocket")
FITTING = architecture.Size(
    heads=1, head_dim=128, layers=2, ffn_dim=64, text_dim=4096, text_heads=2, autoencoder_width=4, residual_blocks=2
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pipeline of the smallest shape that has native names; its latents have units of their own."""
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("fitting") / "model"
    autoencoder = architecture.build_autoencoder(FITTING)
    autoencoder.register_to_config(
        latents_mean=[0.1 * (channel - 8) for channel in range(16)],
        latents_std=[0.5 + 0.1 * channel for channel in range(16)],
    )
    WanPipeline(
        tokenizer=architecture.build_tokenizer(),
        text_encoder=architecture.build_text_encoder(FITTING),
        transformer=architecture.build_denoiser(FITTING),
        vae=autoencoder,
        scheduler=architecture.build_scheduler(),
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with one aligned checkpoint of that pipeline."""
    config = run_config(base)
    model = load_model(config)
    assert isinstance(model, WanModel)
    torch.manual_seed(3)
    model.add_adapter(4, 8.0, config.lora_targets, "gaussian")
    perturb(model, 0.1, only="lora_B")
    folder = tmp_path_factory.mktemp("runs") / "first"
    folder.mkdir()
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    save_checkpoint(folder, 20, config, dict(model.trainable()), None)
    write_pointers(folder, 20, 20)
    return folder


def run_config(base: Path) -> RunConfig:
    values: dict[str, Any] = {"model": str(base), "device": "cpu", "lora_rank": 4, "lora_alpha": 8.0}
    return build_config("pocket", values)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "diffusion_pytorch_model.safetensors")
    return found


def image_to_video() -> WanTransformer3DModel:
    with torch.device("meta"):
        return WanTransformer3DModel(
            num_attention_heads=1,
            num_layers=2,
            ffn_dim=64,
            in_channels=36,
            image_dim=1280,
            added_kv_proj_dim=128,
            pos_embed_seq_len=514,
        )


# names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text to video", "image to video", "autoencoder"])
def test_every_weight_has_a_name_on_both_sides_and_comes_back(kind: str) -> None:
    there, back = (native_vae_name, diffusers_vae_name) if kind == "autoencoder" else (native_name, diffusers_name)
    if kind == "image to video":
        names = list(image_to_video().state_dict())
    else:
        names = list(weights(POCKET / ("vae" if kind == "autoencoder" else "transformer")))
    native = [there(name) for name in names]
    assert None not in native and len(set(native)) == len(names)
    assert [back(name or "") for name in native] == names


def test_the_names_are_those_of_wan() -> None:
    assert native_name("blocks.7.norm2.weight") == "blocks.7.norm3.weight"
    assert native_name("condition_embedder.image_embedder.norm2.weight") == "img_emb.proj.4.weight"
    assert native_name("blocks.3.attn2.add_k_proj.lora_A.weight") == "blocks.3.cross_attn.k_img.lora_A.weight"
    assert native_name("scale_shift_table") == "head.modulation"
    assert native_name("blocks.0.scale_shift_table") == "blocks.0.modulation"
    assert native_vae_name("decoder.up_blocks.1.upsamplers.0.time_conv.bias") == "decoder.upsamples.7.time_conv.bias"
    assert native_vae_name("encoder.mid_block.resnets.1.conv2.weight") == "encoder.middle.2.residual.6.weight"


@pytest.mark.parametrize(
    "name", ["blocks.0.attn9.to_q.weight", "proj_in.weight", "", "decoder.up_blocks.0.resnets.3.x"]
)
def test_a_name_of_another_model_has_none(name: str) -> None:
    assert native_name(name) is None and native_vae_name(name) is None
    with pytest.raises(ValueError, match="has no native name"):
        renamed([name])


# what is written -----------------------------------------------------------------------------------------------------


def test_the_transformer_comes_back_unchanged_and_its_metadata_is_kept(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "native.safetensors"
    write_denoiser(base, file, {"about": "ä <b>"})
    found = load_file(file)
    for name, tensor in weights(base / "transformer").items():
        assert torch.equal(found.pop(native_name(name) or ""), tensor), name
    assert not found
    with safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {"about": "ä <b>"}


@torch.no_grad()
def test_the_autoencoder_takes_latents_in_wan_s_units(base: Path, tmp_path: Path) -> None:
    write_autoencoder(base, tmp_path / "vae.safetensors", {})
    ours = AutoencoderKLWan.from_pretrained(base, subfolder="vae").eval()
    native = AutoencoderKLWan.from_config(ours.config).eval()
    native.load_state_dict({diffusers_vae_name(n) or n: t for n, t in load_file(tmp_path / "vae.safetensors").items()})
    shape = (1, 16, 1, 1, 1)
    mean, std = (torch.tensor(values).view(shape) for values in (ours.config.latents_mean, ours.config.latents_std))
    wan_mean, wan_std = (torch.tensor(values).view(shape) for values in (WAN_MEAN, WAN_STD))
    latents = torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    wanted = ours.decode(latents * std + mean).sample
    torch.testing.assert_close(native.decode(latents * wan_std + wan_mean).sample, wanted, rtol=0, atol=1e-4)
    assert float((ours.decode(latents * wan_std + wan_mean).sample - wanted).abs().max()) > 0.05  # the fold matters
    frames = torch.rand(1, 3, 5, 32, 32, generator=torch.Generator().manual_seed(2)) * 2 - 1
    wanted = (ours.encode(frames).latent_dist.mode() - mean) / std
    found = (native.encode(frames).latent_dist.mode() - wan_mean) / wan_std
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_wan_s_own_autoencoder_is_only_renamed(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "vae", tmp_path / "model" / "vae")
    file = tmp_path / "model" / "vae" / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | {"latents_mean": WAN_MEAN, "latents_std": WAN_STD}
    file.write_text(json.dumps(config), encoding="utf-8")
    write_autoencoder(tmp_path / "model", tmp_path / "vae.safetensors", {})
    found = load_file(tmp_path / "vae.safetensors")
    for name, tensor in weights(base / "vae").items():
        assert torch.equal(found[native_vae_name(name) or ""], tensor), name


def test_a_native_export_holds_what_a_merged_one_does(run: Path) -> None:
    merged = weights(export_run(run, "merged") / "transformer")
    folder = export_run(run, "native")
    native = load_file(folder / "diffusion_models" / "first-000020.safetensors")
    assert native.keys() == {native_name(name) for name in merged}
    for name, tensor in merged.items():
        assert torch.equal(native[native_name(name) or ""], tensor), name
    assert (folder / "vae" / "model-vae.safetensors").is_file()
    assert "Load Diffusion Model" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_adapter_says_what_a_loader_must_check(run: Path, base: Path) -> None:
    (file,) = export_run(run, "adapter").glob("*.safetensors")
    with safe_open(file, framework="pt") as opened:
        facts = opened.metadata()
    assert facts["flash_grpo.expert"] == "none"
    assert json.loads(facts["flash_grpo.judged_at"])["frames"] == 9
    assert json.loads(facts["flash_grpo.reward_options"]) == {"subject_size": {"low": 0.2, "high": 0.26}}
    assert json.loads(facts["flash_grpo.base_sketch"]) == sketch(base)


# what is refused -----------------------------------------------------------------------------------------------------


def test_a_model_that_comfyui_would_misread_is_refused(run: Path, tmp_path: Path) -> None:
    refuse_unfit(POCKET)
    sentence = r"ComfyUI's loader expects attention_head_dim 128 in its transformer, and it has 32; .*merged or adapter"
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    (tmp_path / "run" / "config.yaml").write_text(dump_config(run_config(built_in_folder("pocket-micro"))))
    with pytest.raises(ValueError, match=sentence):
        export_run(tmp_path / "run", "native")
    assert not (tmp_path / "run" / "export" / "native").exists()


# sketches ------------------------------------------------------------------------------------------------------------


def test_a_sketch_knows_its_model_in_8_bits_and_no_other(base: Path) -> None:
    ours = sketch(base)
    tensors = {native_name(name): tensor for name, tensor in weights(base / "transformer").items()}
    for name, entry in ours.items():
        rounded = tensors[name].to(torch.float8_e4m3fn).float().flatten()
        kept = [float(rounded[index * rounded.numel() // 64]) for index in range(64)]
        assert likeness(entry["values"], kept) > SAME, name
    other = sketch(POCKET)
    shared = ours.keys() & other.keys()
    assert shared and all(likeness(ours[n]["values"], other[n]["values"]) < 0.9 for n in shared)
    assert likeness([1.0], [1.0, 2.0]) == likeness([0.0], [0.0]) == likeness([float("nan")], [1.0]) == 0.0
