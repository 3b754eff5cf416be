"""Whatever a file calls its layers, each finds its own in the model; what fits nothing is never passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from custom_nodes.comfyui_flash_grpo.logic.adapter_file import Header, read_header
from custom_nodes.comfyui_flash_grpo.logic.base_check import EXPERTS, check_base, check_expert
from custom_nodes.comfyui_flash_grpo.logic.facts import Facts
from custom_nodes.comfyui_flash_grpo.logic.matching import file_scale, match, scale_of, split
from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from tests.custom_nodes.adapters import NAMINGS, RANK, linear_layers, lora, model_shapes, named, write

FILE = "a.safetensors"


def header_of(tensors: dict[str, torch.Tensor], **metadata: str) -> Header:
    return Header({name: tuple(tensor.shape) for name, tensor in tensors.items()}, metadata)


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize(("image", "count"), [(False, 27), (True, 33)])
def test_every_layer_is_matched_under_every_naming(naming: str, image: bool, count: int) -> None:
    layers = linear_layers(image=image)
    found = match(header_of(named(lora(layers), naming)), model_shapes(layers), FILE)
    found.refuse_unused(FILE)
    assert found.layers.keys() == layers.keys() and len(layers) == count
    assert found.unused == found.untouched == ()
    assert {layer.rank for layer in found.layers.values()} == {RANK}


def test_layers_of_the_model_without_an_adapter_are_told() -> None:
    layers = linear_layers()
    few = {name: shape for name, shape in layers.items() if name.endswith("attn.q")}
    found = match(header_of(named(lora(few), "native")), model_shapes(layers), FILE)
    assert len(found.layers) == 4 and len(found.untouched) == 16  # 20 layers of blocks, of which 4 have one


@pytest.mark.parametrize(
    "key",
    [
        "diffusion_model.blocks.0.modulation.diff",
        "diffusion_model.blocks.0.self_attn.q.lora_B.bias",
        "diffusion_model.blocks.0.self_attn.q.dora_scale",
        "diffusion_model.blocks.7.self_attn.q.lora_A.weight",
        "diffusion_model.blocks.0.norm3.lora_A.weight",
        "text_encoder.blocks.0.q.lora_A.weight",
        "lora_unet_down_blocks_0.lora_down.weight",
    ],
)
def test_one_key_that_would_do_nothing_is_enough_to_refuse(key: str) -> None:
    layers = linear_layers()
    tensors = named(lora(layers), "native") | {key: torch.zeros(RANK, 256)}
    found = match(header_of(tensors), model_shapes(layers), FILE)
    assert found.unused == (key,)
    with pytest.raises(Problem, match="1 keys of a.safetensors fit nothing .* connect its base model"):
        found.refuse_unused(FILE)


def test_an_adapter_of_another_family_is_refused() -> None:
    shapes = model_shapes(linear_layers())
    stranger = {f"transformer.single_blocks.{n}.linear1.lora_{p}.weight": torch.zeros(4, 4) for n in "01" for p in "AB"}
    with pytest.raises(Problem, match="holds no layer of the connected model, such as transformer.single_blocks.0"):
        match(header_of(stranger), shapes, FILE).refuse_unused(FILE)
    with pytest.raises(Problem, match="the connected model is no Wan model"):
        match(header_of(named(lora(linear_layers()), "native")), {"input_blocks.0": (4, 4)}, FILE)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "another size",
            r"changes blocks.0.self_attn.q as \[512, 256\] and the connected model has it as \[256, 256\]",
        ),
        ("ranks", "have different ranks"),
        ("half", "holds only one half of blocks.0.self_attn.q"),
        ("twice", "holds blocks.0.self_attn.q twice"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(kind: str, sentence: str) -> None:
    layers = linear_layers()
    tensors = named(lora(layers), "native")
    key = "diffusion_model.blocks.0.self_attn.q.lora_B.weight"
    if kind == "another size":
        tensors[key] = torch.zeros(512, RANK)
    elif kind == "ranks":
        tensors[key] = torch.zeros(256, RANK + 1)
    elif kind == "half":
        del tensors[key]
    else:
        tensors["transformer.blocks.0.attn1.to_q.lora_B.weight"] = tensors[key]
    with pytest.raises(Problem, match=sentence):
        match(header_of(tensors), model_shapes(layers), FILE)


def test_names_are_split_into_layer_and_part() -> None:
    assert split("base_model.model.blocks.1.attn2.to_out.0.lora_B.default.weight") == ("blocks.1.cross_attn.o", "b")
    assert split("diffusion_model.blocks.1.ffn.2.alpha") == ("blocks.1.ffn.2", "alpha")
    assert split("model.diffusion_model.output_blocks.1.lora_A.weight") is None and split("") is None


# the scale -----------------------------------------------------------------------------------------------------------


def scale(
    tensors: dict[str, torch.Tensor], folder: Path, name: str = FILE, **metadata: str
) -> tuple[float | None, str]:
    file = write(folder / name, tensors, {key.replace("__", "."): value for key, value in metadata.items()})
    return file_scale(read_header(file), file)


def test_the_scale_is_found_wherever_a_file_keeps_it(tmp_path: Path) -> None:
    pairs = lora({"blocks.0.self_attn.q": (256, 256)})
    native, peft = named(pairs, "native"), named(pairs, "peft")
    assert scale(native, tmp_path, flash_grpo__format="adapter") == (1.0, "scale baked in")
    assert scale(native, tmp_path)[0] == 1.0
    of_diffusers = json.dumps({"transformer.r": 4, "transformer.lora_alpha": 10})
    assert scale(peft, tmp_path, lora_adapter_metadata=of_diffusers)[0] == 2.5
    number, words = scale(peft, tmp_path)
    assert number is None and "assumed" in words
    config = {"r": 4, "lora_alpha": 8, "use_rslora": True}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert scale(peft, tmp_path, "adapter_model.safetensors")[0] == 4.0
    header = read_header(
        write(tmp_path / FILE, native | {"diffusion_model.blocks.0.self_attn.q.alpha": torch.tensor(8)})
    )
    layer = match(header, model_shapes(linear_layers()), FILE).layers["blocks.0.self_attn.q"]
    assert layer.alpha is not None and scale_of(header, layer, 8.0, None) == 2.0
    assert scale_of(header, layer, None, None) == 1.0


@pytest.mark.parametrize(
    "config", ["{", '{"r": 0, "lora_alpha": 8}', '{"lora_alpha": 8}', '{"r": 4, "rank_pattern": {"q": 8}}']
)
def test_a_scale_that_cannot_be_known_is_refused(config: str, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(config, encoding="utf-8")
    with pytest.raises(Problem, match="cannot be read|not supported"):
        scale(named(lora({"blocks.0.self_attn.q": (8, 8)}), "peft"), tmp_path, "adapter_model.safetensors")


# the base ------------------------------------------------------------------------------------------------------------

WEIGHTS = torch.randn(256, 256, generator=torch.Generator().manual_seed(1))
SKETCH = {"blocks.0.self_attn.q.weight": ((256, 256), tuple(WEIGHTS.flatten()[::1024].tolist()))}
FACTS = Facts("a.safetensors", base="pocket", sketch=SKETCH)


def checked(weights: torch.Tensor | None, facts: Facts = FACTS, strict: bool = True, width: int = 256) -> str:
    def numbers(name: str, where: list[int]) -> list[float] | None:
        return None if weights is None else [float(weights.flatten()[place]) for place in where]

    return check_base(facts, {"blocks.0.self_attn.q": (256, width)}, numbers, strict)  # type: ignore[arg-type]


def test_the_base_is_known_by_its_weights_in_any_precision() -> None:
    assert checked(WEIGHTS) == "base pocket: confirmed by its weights"
    assert "confirmed by" in checked(WEIGHTS.half()) and "confirmed by" in checked(
        (WEIGHTS * 3).to(torch.float8_e4m3fn)
    )
    assert "not confirmed" in checked(None) and "not confirmed" in checked(WEIGHTS, Facts("a", base="pocket"))


def test_another_base_is_refused_unless_asked_for() -> None:
    other = torch.randn(256, 256, generator=torch.Generator().manual_seed(2))
    with pytest.raises(
        Problem, match=r"trained on pocket, .* other weights .*; connect pocket, or switch `check_base` off"
    ):
        checked(other)
    assert "another one" in checked(other, strict=False)
    with pytest.raises(Problem, match="the connected model has another shape there; connect pocket"):
        checked(WEIGHTS, strict=False, width=512)


@pytest.mark.parametrize(("expert", "right"), [("none", 0), ("high_noise", 1), ("low_noise", 2)])
def test_the_wrong_expert_is_refused(expert: str, right: int) -> None:
    facts = Facts("a.safetensors", expert=expert)
    check_expert(facts, EXPERTS[right])
    for wrong in {*EXPERTS} - {EXPERTS[right]}:
        with pytest.raises(Problem, match=f"was trained for a {EXPERTS[right]} and the node is set to"):
            check_expert(facts, wrong)
    check_expert(Facts("a.safetensors"), EXPERTS[2])  # it does not say
