"""What ComfyUI makes of an adapter equals what diffusers and PEFT make of it, layer by layer and as a video."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline, WanTransformer3DModel
from safetensors.torch import load_file, save_file

from flash_grpo.export_native import WAN_MEAN, WAN_STD
from flash_grpo.models.registry import built_in_folder
from flash_grpo.native import native_name
from flash_grpo_studio.comfyui.pocket import aligned_adapters
from tests.custom_nodes.adapters import DIM, linear_layers, lora, named, write
from tests.custom_nodes.real.comfyui import DIR, PYTHON

SHAPES: dict[str, dict[str, Any]] = {
    "wan2.1-t2v": {},
    "wan2.1-i2v": {"in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": DIM},
    "wan2.2-t2v-expert": {},
    "wan2.2-i2v-expert": {"in_channels": 36},
    "wan2.2-ti2v": {"in_channels": 48, "out_channels": 48},
}
LAYERS = {name: 33 if name == "wan2.1-i2v" else 27 for name in SHAPES}
ALPHA = 6.0
STEPS, GUIDANCE, SHIFT, SEED = 6, 3.0, 3.0, 11
CAPTION = "a red circle moving left on a black background"
TOLERANCE = 1e-3


def layers_of(name: str) -> dict[str, tuple[int, ...]]:
    channels = SHAPES[name].get("in_channels", 16)
    found = linear_layers(image=name == "wan2.1-i2v", channels=channels)
    return found | {"head.head": (4 * SHAPES[name].get("out_channels", 16), DIM)}


def random_model(name: str) -> dict[str, torch.Tensor]:
    """A random model of one of the shapes, under native names."""
    torch.manual_seed(list(SHAPES).index(name))
    model = WanTransformer3DModel(num_attention_heads=2, num_layers=2, ffn_dim=2 * DIM, **SHAPES[name])
    return {native_name(key) or key: tensor.contiguous() for key, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def probed(comfy_base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the probe found, and where it put it."""
    folder = tmp_path_factory.mktemp("probe")
    models = comfy_base / "models"
    cases = [case for name in SHAPES for case in weight_cases(name, models, folder)]
    pipeline = WanPipeline.from_pretrained(built_in_folder("pocket"), dtype=torch.float32)
    texts = [
        pipeline.encode_prompt(text, do_classifier_free_guidance=False, max_sequence_length=24)[0][0]
        for text in (CAPTION, "")
    ]
    given = write(folder / "given", dict(zip(("positive", "negative"), texts, strict=True)))
    cases += [sample_case(steps, folder, given) for steps in ("all", "early", "late")]
    cases += refused_cases()
    spec = {"base": str(comfy_base), "answer": str(folder / "answer.json"), "cases": cases}
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    command = [PYTHON, str(Path(__file__).with_name("probe.py").resolve()), str(folder / "spec.json")]
    done = subprocess.run(command, cwd=DIR, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return {**answer, "folder": folder, "pipeline": pipeline, "texts": texts}


def weight_cases(name: str, models: Path, folder: Path) -> list[dict[str, Any]]:
    """One shape's model on disk, and its adapter under three namings."""
    save_file(random_model(name), models / "diffusion_models" / f"{name}.safetensors")
    pairs = lora(layers_of(name))
    baked = {layer: (a, b * ALPHA / a.shape[0]) for layer, (a, b) in pairs.items()}
    facts = {"flash_grpo.format": "adapter", "flash_grpo.expert": "high_noise" if "expert" in name else "none"}
    write(models / "loras" / f"{name}-native.safetensors", named(baked, "native"), facts)
    said = {"lora_adapter_metadata": json.dumps({"transformer.r": 4, "transformer.lora_alpha": ALPHA})}
    write(models / "loras" / f"{name}-diffusers.safetensors", named(pairs, "diffusers"), said)
    (models / "loras" / name).mkdir()
    write(models / "loras" / name / "adapter_model.safetensors", named(pairs, "peft"))
    (models / "loras" / name / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": ALPHA}))
    files = {"native": f"{name}-native.safetensors", "diffusers": f"{name}-diffusers.safetensors"}
    files["peft"] = f"{name}/adapter_model.safetensors"
    expert = {"expert": "high noise expert"} if "expert" in name else {}
    return [
        {
            "name": f"{name} {naming}",
            "do": "weights",
            "model": f"{name}.safetensors",
            "adapter": file,
            "settings": {"strength": 0.5, **expert},
            "after": str(folder / f"{name}-{naming}-after"),
            "before": str(folder / f"{name}-{naming}-before"),
        }
        for naming, file in files.items()
    ]


def sample_case(steps: str, folder: Path, given: Path) -> dict[str, Any]:
    return {
        "name": f"pocket {steps}",
        "do": "sample",
        "model": "flash-grpo-pocket.safetensors",
        "adapter": aligned_adapters()[-1].name,
        "shift": SHIFT,
        "settings": {"steps": steps},
        "given": str(given),
        "shape": [1, 16, 3, 4, 4],
        "seed": SEED,
        "sampling_steps": STEPS,
        "cfg": GUIDANCE,
        "vae": "flash-grpo-pocket-vae.safetensors",
        "answer": str(folder / f"pocket-{steps}"),
    }


def refused_cases() -> list[dict[str, Any]]:
    pocket, other = aligned_adapters()[-1].name, "wan2.1-t2v.safetensors"
    expert = {"model": "wan2.2-t2v-expert.safetensors", "adapter": "wan2.2-t2v-expert-native.safetensors"}
    cases = {
        "wrong size": {"model": other, "adapter": pocket},
        "wrong family": {"model": "wan2.1-i2v.safetensors", "adapter": "wan2.2-ti2v-native.safetensors"},
        "unused keys": {"model": other, "adapter": "wan2.1-i2v-native.safetensors"},
        "wrong expert": {**expert, "settings": {"expert": "low noise expert"}},
    }
    return [{"name": name, "do": "weights", "after": "", "before": "", **case} for name, case in cases.items()]


# layer by layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("naming", ["native", "diffusers", "peft"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_layer_is_patched_with_the_right_scale_and_the_base_comes_back(
    name: str, naming: str, probed: dict[str, Any]
) -> None:
    answer, folder = probed[f"{name} {naming}"], probed["folder"]
    count = LAYERS[name]
    assert (
        f"matched {count} layers ({2 * count} keys), unmatched 0 layers of the model, unused 0 keys" in answer["info"]
    )
    base = random_model(name)
    after, before = (load_file(folder / f"{name}-{naming}-{side}") for side in ("after", "before"))
    pairs = lora(layers_of(name))
    assert after.keys() == before.keys() == base.keys()
    changed = 0
    for key, weight in base.items():
        torch.testing.assert_close(before[key], weight, rtol=0, atol=0, msg=f"{key} of the base")
        pair = pairs.get(key.removesuffix(".weight"))
        if pair is not None and key.endswith(".weight"):
            a, b = pair
            delta = (b.flatten(1) @ a.flatten(1)).reshape(weight.shape) * 0.5 * ALPHA / a.shape[0]
            torch.testing.assert_close(after[key], weight + delta, rtol=0, atol=1e-6, msg=key)
            changed += 1
        else:
            assert torch.equal(after[key], weight), key
    assert changed == count


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("wrong size", "changes blocks.0|fit nothing in the connected model"),
        ("wrong family", "changes patch_embedding|another size of the model"),
        ("unused keys", "keys of wan2.1-i2v-native.safetensors fit nothing|another size of the model"),
        ("wrong expert", "was trained for a high noise expert and the node is set to 'low noise expert'"),
    ],
)
def test_what_does_not_belong_to_the_model_is_refused(case: str, sentence: str, probed: dict[str, Any]) -> None:
    import re

    assert re.search(sentence, probed[case]["error"]), probed[case]


# as a video ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def reference(probed: dict[str, Any], adapted: range) -> tuple[torch.Tensor, torch.Tensor]:
    """diffusers + PEFT from the same noise: latents in the model's own units, frames [F, H, W, 3]."""
    pipeline = probed["pipeline"]
    if not pipeline.get_list_adapters():
        file = aligned_adapters()[-1]
        pipeline.load_lora_weights(str(file.parent), weight_name=file.name)
    positive, negative = (text[None] for text in probed["texts"])
    latents = torch.randn(1, 16, 3, 4, 4, generator=torch.manual_seed(SEED))
    table = torch.arange(1, 1001) / 1000
    table = SHIFT * table / (1 + (SHIFT - 1) * table)
    sigmas = [float(table[-(1 + int(step * 1000 / STEPS))]) for step in range(STEPS)] + [0.0]
    for step in range(STEPS):
        pipeline.enable_lora() if step in adapted else pipeline.disable_lora()
        time = torch.tensor([1000 * sigmas[step]])
        with_text, without = (
            pipeline.transformer(latents, time, text, return_dict=False)[0] for text in (positive, negative)
        )
        latents = latents + (sigmas[step + 1] - sigmas[step]) * (without + GUIDANCE * (with_text - without))
    config = pipeline.vae.config
    mean, std = (torch.tensor(values).view(1, 16, 1, 1, 1) for values in (config.latents_mean, config.latents_std))
    frames = pipeline.vae.decode(latents * std + mean).sample[0].permute(1, 2, 3, 0) / 2 + 0.5
    return latents, frames.clamp(0, 1)


def native_latents(tensor: torch.Tensor) -> torch.Tensor:
    """ComfyUI's latents in the model's own units."""
    mean, std = (torch.tensor(values).view(1, 16, 1, 1, 1) for values in (WAN_MEAN, WAN_STD))
    return (tensor - mean) / std


@pytest.mark.parametrize(
    ("steps", "adapted"), [("all", range(STEPS)), ("early", range(STEPS // 2)), ("late", range(STEPS // 2, STEPS))]
)
def test_before_and_after_equal_diffusers_and_peft(
    steps: str, adapted: range, probed: dict[str, Any], record_property: Any
) -> None:
    found = load_file(probed["folder"] / f"pocket-{steps}")
    before, _ = reference(probed, range(0))
    after, frames = reference(probed, adapted)
    gaps = {
        "before": float((native_latents(found["before"]) - before).abs().max()),
        "after": float((native_latents(found["after"]) - after).abs().max()),
        "frames": float((found["frames"].reshape(frames.shape) - frames).abs().max()),
    }
    print(f"largest differences, adapter in {steps} steps: {gaps}")
    assert max(gaps.values()) < TOLERANCE, gaps
    # Negative control: before and after are far apart, and so are the other step ranges.
    assert float((before - after).abs().max()) > 20 * TOLERANCE
    other, _ = reference(probed, range(STEPS) if steps != "all" else range(STEPS // 2))
    assert float((other - after).abs().max()) > 5 * TOLERANCE
    assert "confirmed by its weights" in probed[f"pocket {steps}"]["info"]
