"""Exports: what others load gives what the engine gave, and what must not be exported is not."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline, WanTransformer3DModel
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from flash_grpo import cli, export_files
from flash_grpo.checkpoint import put_weights, save_checkpoint, trained_weights, write_pointers
from flash_grpo.config import RunConfig, dump_config
from flash_grpo.evaluate import deploy
from flash_grpo.events import read_events
from flash_grpo.export import export_run
from flash_grpo.models.folder import content_hash, file_hash
from flash_grpo.models.registry import built_in_folder
from flash_grpo.models.wan import WanModel
from flash_grpo.noise import gaussian
from flash_grpo.rollout import Meter
from tests.tiny import CAPTIONS, NEGATIVE, config_for, embed, open_model, perturb

RANK, ALPHA = 4, 12.0
TARGETS = ["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj", "ffn.net.2"]
STEPS = 3
TOLERANCE = 1e-4
MISS = 1e-2


def settings(base: Path, **changes: Any) -> RunConfig:
    values = {"lora_rank": RANK, "lora_alpha": ALPHA, "lora_targets": TARGETS, "evaluation_steps": STEPS, **changes}
    return config_for(base, **values)


def trained_model(base: Path, targets: list[str] = TARGETS, spread: float = 0.1) -> WanModel:
    """The engine's model with a LoRA adapter that matters."""
    model = open_model(base)
    torch.manual_seed(3)
    model.add_adapter(RANK, ALPHA, targets, "gaussian")
    perturb(model, spread, only="lora_B")
    return model


def save_run(
    folder: Path, model: WanModel, config: RunConfig, averaged: dict[str, torch.Tensor] | None = None, update: int = 20
) -> Path:
    """A run folder as training leaves it; its best and latest checkpoint hold the model's weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    save_checkpoint(folder, update, config, dict(model.trainable()), averaged)
    write_pointers(folder, update, update)
    return folder


@pytest.fixture
def run(tiny_folder: Path, tmp_path: Path) -> Path:
    return save_run(tmp_path / "runs" / "first", trained_model(tiny_folder), settings(tiny_folder))


def flash_grpo(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def noise() -> torch.Tensor:
    return torch.stack([gaussian((16, 2, 4, 4), seed) for seed in range(len(CAPTIONS))])


def engine_output(model: WanModel, base: Path) -> torch.Tensor:
    """What the run itself samples in its evaluation."""
    embeddings = embed(model)
    return deploy(model, settings(base), embeddings, range(len(CAPTIONS)), noise(), Meter())


@torch.no_grad()
def pipeline_output(pipeline: Any) -> torch.Tensor:
    """What a user samples with diffusers."""
    pipeline.set_progress_bar_config(disable=True)
    latents: torch.Tensor = pipeline(
        prompt=list(CAPTIONS),
        negative_prompt=[NEGATIVE] * len(CAPTIONS),
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=STEPS,
        guidance_scale=settings(Path("x")).deployment_guidance(),
        latents=noise(),
        max_sequence_length=24,
        output_type="latent",
    ).frames
    return latents


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def with_adapter(base: Path, file: Path) -> torch.Tensor:
    pipeline = WanPipeline.from_pretrained(base)
    pipeline.load_lora_weights(str(file.parent), weight_name=file.name)
    return pipeline_output(pipeline)


def adapter_of(run: Path) -> Path:
    (file,) = export_run(run, "adapter").glob("*.safetensors")
    return file


def metadata_of(file: Path) -> dict[str, str]:
    with safe_open(file, framework="pt") as opened:
        facts: dict[str, str] = opened.metadata()
    return facts


# round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adapter", "peft", "merged"])
@pytest.mark.parametrize("model", ["a folder", "pocket-micro"])
def test_the_how_to_beside_an_export_gives_the_engine_s_output(
    kind: str, model: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tiny_folder if model == "a folder" else Path(model)
    aligned = engine_output(trained_model(base), base)
    run = save_run(tmp_path / "run", trained_model(base), settings(base))
    folder = tmp_path / "elsewhere" / "aligned"
    assert flash_grpo("export", run, "--format", kind, "--output", folder, monkeypatch=monkeypatch) == 0
    shutil.copytree(tiny_folder, folder.parent / tiny_folder.name)
    monkeypatch.chdir(folder.parent)
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"torch": torch, "WanPipeline": WanPipeline, "PeftModel": PeftModel}
    names["built_in_folder"] = built_in_folder
    exec(code, names)
    assert gap(pipeline_output(names["pipeline"]), aligned) < TOLERANCE
    # Negative control: the base model's output is another one.
    untrained = WanPipeline.from_pretrained(tiny_folder if model == "a folder" else built_in_folder(model))
    assert gap(pipeline_output(untrained), aligned) > MISS


def test_a_wrong_scale_or_wrong_keys_are_seen(run: Path, tiny_folder: Path, tmp_path: Path) -> None:
    aligned = engine_output(trained_model(tiny_folder), tiny_folder)
    right = adapter_of(run)
    assert gap(with_adapter(tiny_folder, right), aligned) < TOLERANCE
    tensors = load_file(right)
    unscaled = {name: t / (ALPHA / RANK) if "lora_B" in name else t for name, t in tensors.items()}
    swap = {"self_attn.q": "self_attn.k", "self_attn.k": "self_attn.q"}
    swapped = {re.sub(r"self_attn\.[qk]", lambda m: swap[m[0]], name): t for name, t in tensors.items()}
    for name, changed in (("unscaled", unscaled), ("swapped", swapped)):
        save_file(changed, tmp_path / f"{name}.safetensors")
        assert gap(with_adapter(tiny_folder, tmp_path / f"{name}.safetensors"), aligned) > MISS, name
    other_prefix = {name.replace("diffusion_model.", "transformer."): t for name, t in tensors.items()}
    save_file(other_prefix, tmp_path / "prefix.safetensors")
    with pytest.raises(ValueError, match="not found in the base model"):
        with_adapter(tiny_folder, tmp_path / "prefix.safetensors")


def test_another_alpha_in_the_configuration_misses(run: Path, tiny_folder: Path) -> None:
    aligned = engine_output(trained_model(tiny_folder), tiny_folder)
    (run / "config.yaml").write_text(dump_config(settings(tiny_folder, lora_alpha=ALPHA / 2)), encoding="utf-8")
    assert gap(with_adapter(tiny_folder, adapter_of(run)), aligned) > MISS
    assert gap(pipeline_output(WanPipeline.from_pretrained(export_run(run, "merged"))), aligned) > MISS


def test_diffusers_loads_the_peft_folder_with_its_scale(run: Path, tiny_folder: Path) -> None:
    aligned = engine_output(trained_model(tiny_folder), tiny_folder)
    folder = export_run(run, "peft")
    pipeline = WanPipeline.from_pretrained(tiny_folder)
    pipeline.transformer.load_lora_adapter(
        str(folder), prefix="base_model.model", weight_name="adapter_model.safetensors"
    )
    assert gap(pipeline_output(pipeline), aligned) < TOLERANCE
    adapter = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert (adapter["peft_type"], adapter["r"], adapter["lora_alpha"]) == ("LORA", RANK, ALPHA)
    assert str(tiny_folder) not in (folder / "adapter_config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["adapter", "merged"])
def test_the_averaged_weights_are_what_is_exported(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    model = trained_model(tiny_folder)
    averaged = {name: weight.detach().clone() for name, weight in model.trainable()}
    aligned = engine_output(model, tiny_folder)
    perturb(model, 0.3, seed=5)
    assert gap(engine_output(model, tiny_folder), aligned) > MISS
    folder = export_run(save_run(tmp_path / "run", model, settings(tiny_folder), averaged), kind)
    if kind == "adapter":
        found = with_adapter(tiny_folder, next(folder.glob("*.safetensors")))
    else:
        found = pipeline_output(WanPipeline.from_pretrained(folder))
    assert gap(found, aligned) < TOLERANCE


def test_a_full_fine_tuning_becomes_a_pipeline_and_no_adapter(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = open_model(tiny_folder)
    model.train_all(keep_base=False)
    perturb(model, 0.02)
    run = save_run(tmp_path / "run", model, settings(tiny_folder, adapter="full"))
    aligned = engine_output(model, tiny_folder)
    folder = export_run(run, "merged")
    assert gap(pipeline_output(WanPipeline.from_pretrained(folder)), aligned) < TOLERANCE
    assert gap(pipeline_output(WanPipeline.from_pretrained(tiny_folder)), aligned) > MISS
    for kind in ("adapter", "peft"):
        assert flash_grpo("export", run, "--format", kind, monkeypatch=monkeypatch) == 2
        assert "has no adapter; export it with --format merged" in capsys.readouterr().err
        assert not (run / "export" / kind).exists()


def test_merging_keeps_small_changes_of_a_sharded_half_precision_base(tiny_folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_folder, base)
    shutil.rmtree(base / "transformer")
    half = WanTransformer3DModel.from_pretrained(tiny_folder, subfolder="transformer", torch_dtype=torch.bfloat16)
    half.save_pretrained(base / "transformer", max_shard_size="10KB")
    assert len(list((base / "transformer").glob("*.safetensors"))) > 1
    run = save_run(tmp_path / "run", trained_model(base, spread=1e-4), settings(base))
    folder = export_run(run, "merged") / "transformer"
    model = trained_model(base, spread=1e-4)
    weights = trained_weights(dict(model.trainable()))
    found = {name: t for file in folder.glob("*.safetensors") for name, t in load_file(file).items()}
    for name, old in half.state_dict().items():
        a = weights.get(f"transformer.{name.removesuffix('.weight')}.lora_A.weight")
        b = weights.get(f"transformer.{name.removesuffix('.weight')}.lora_B.weight")
        if a is None or b is None:
            assert torch.equal(found[name], old), name
        else:
            wanted = old.float() + ALPHA / RANK * (b @ a)
            torch.testing.assert_close(found[name], wanted, rtol=0, atol=1e-7)
            assert not torch.equal(found[name].bfloat16().float(), found[name])  # half precision would round it away
    index = json.loads((folder / "diffusion_pytorch_model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in found.values())


# ComfyUI ---------------------------------------------------------------------------------------------------------

BLOCK_LAYERS = [f"{part}_attn.{layer}" for part in ("self", "cross") for layer in "qkvo"] + ["ffn.0", "ffn.2"]
DIFFUSERS_ORDER = [f"attn{n}.{layer}" for n in (1, 2) for layer in ("to_q", "to_k", "to_v", "to_out.0")]
DIFFUSERS_ORDER += ["ffn.net.0.proj", "ffn.net.2"]


def comfyui_patches(native: dict[str, torch.Tensor], adapter: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """ComfyUI's rule: `diffusion_model.` + native module; the scale is alpha / rank where alpha is said, else 1."""
    patched = {}
    for key, weight in native.items():
        name = f"diffusion_model.{key.removesuffix('.weight')}"
        a, b = adapter.get(f"{name}.lora_A.weight"), adapter.get(f"{name}.lora_B.weight")
        if a is not None and b is not None:
            alpha = adapter.get(f"{name}.alpha")
            scale = 1.0 if alpha is None else float(alpha) / a.shape[0]
            patched[key] = weight + scale * b @ a
    return patched


def test_comfyui_would_patch_every_layer_with_the_right_scale(run: Path, tiny_folder: Path, tmp_path: Path) -> None:
    base = WanPipeline.from_pretrained(tiny_folder).transformer.state_dict()
    pairs = [
        (f"blocks.{i}.{n}.weight", f"blocks.{i}.{d}.weight")
        for i in range(2)
        for n, d in zip(BLOCK_LAYERS, DIFFUSERS_ORDER, strict=True)
    ]
    native = {new: base[old] for new, old in pairs}
    adapter = load_file(adapter_of(run))
    patched = comfyui_patches(native, adapter)
    assert patched.keys() == native.keys() and len(adapter) == 2 * len(native)
    merged = load_file(export_run(run, "merged") / "transformer" / "diffusion_pytorch_model.safetensors")
    for new, old in pairs:
        torch.testing.assert_close(patched[new], merged[old], rtol=0, atol=1e-6)
    # Negative controls: other prefixes and names patch nothing, a missing scale patches wrongly.
    checkpoint = load_file(run / "checkpoints" / "000020" / "adapter.safetensors")
    assert comfyui_patches(native, checkpoint) == {}
    assert comfyui_patches(native, {k.removeprefix("diffusion_model."): t for k, t in adapter.items()}) == {}
    assert comfyui_patches(native, load_file(export_run(run, "peft") / "adapter_model.safetensors")) == {}
    unscaled = {k: t / (ALPHA / RANK) if "lora_B" in k else t for k, t in adapter.items()}
    assert gap(comfyui_patches(native, unscaled)[pairs[0][0]], merged[pairs[0][1]]) > 1e-3
    # A file that says alpha as well would be scaled twice by diffusers, so ours does not.
    assert not [name for name in adapter if "alpha" in name]
    assert "lora_adapter_metadata" not in metadata_of(adapter_of(run))


@pytest.mark.parametrize("target", ["proj_out", "time_proj", "linear_1"])
def test_layers_that_one_of_both_would_not_load_are_refused(target: str, tiny_folder: Path, tmp_path: Path) -> None:
    model = trained_model(tiny_folder, ["to_q", target])
    run = save_run(tmp_path / "run", model, settings(tiny_folder, lora_targets=["to_q", target]))
    with pytest.raises(ValueError, match=f"attention and feed-forward layers, got one of .*{target}.*merged"):
        export_run(run, "adapter")
    aligned = engine_output(model, tiny_folder)
    assert gap(pipeline_output(WanPipeline.from_pretrained(export_run(run, "merged"))), aligned) < TOLERANCE


# what is said ----------------------------------------------------------------------------------------------------


def test_the_metadata_says_where_the_weights_come_from(run: Path, tiny_folder: Path) -> None:
    gains = {"colorfulness": {"before": 0.1, "after": 0.2, "gain": 0.1, "ci95": [0.05, 0.15], "win_rate": 0.9}}
    (run / "summary.json").write_text(json.dumps({"best_update": 20, "heldout": gains}), encoding="utf-8")
    file = adapter_of(run)
    assert file.name == "first-000020.safetensors"
    facts = metadata_of(file)
    assert facts["flash_grpo.base_model"] == tiny_folder.name  # and not where it lies on this machine
    assert str(tiny_folder.parent) not in json.dumps(facts)
    assert facts["flash_grpo.base_sha256"] == content_hash(tiny_folder)
    assert (facts["flash_grpo.run"], facts["flash_grpo.update"]) == ("first", "20")
    assert json.loads(facts["flash_grpo.rewards"]) == {"colorfulness": 1.0, "sharpness": 0.0}
    assert json.loads(facts["flash_grpo.gains"]) == gains
    assert (facts["flash_grpo.format"], facts["flash_grpo.format_version"]) == ("adapter", "1")
    assert "flash_grpo.base_licence" not in facts  # nobody knows it
    record = json.loads((file.parent / "export.json").read_text(encoding="utf-8"))
    assert record["metadata"] == facts
    assert record["files"].keys() == {file.name, "README.md", "workflow.json"}


def test_figures_of_another_checkpoint_are_not_claimed(run: Path) -> None:
    (run / "summary.json").write_text(json.dumps({"best_update": 10, "heldout": {"colorfulness": {}}}))
    assert "flash_grpo.gains" not in metadata_of(adapter_of(run))


def test_the_hash_tells_another_base(tiny_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_folder, other)
    assert content_hash(other) == content_hash(tiny_folder)
    file = other / "transformer" / "diffusion_pytorch_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert content_hash(other) != content_hash(tiny_folder)


def test_a_model_card_s_licence_is_passed_on(tmp_path: Path) -> None:
    config = config_for(Path("pocket-micro"), lora_rank=RANK, lora_alpha=ALPHA)
    model = trained_model(Path("pocket-micro"), config.lora_targets)
    file = adapter_of(save_run(tmp_path / "run", model, config))
    assert metadata_of(file)["flash_grpo.base_licence"] == "Apache-2.0"
    assert 'built_in_folder("pocket-micro")' in (file.parent / "README.md").read_text(encoding="utf-8")


def test_an_adapter_needs_no_base_model_here_but_merging_does(run: Path, tiny_folder: Path) -> None:
    gone = settings(tiny_folder).model_copy(update={"model": "someone/a-model-that-is-not-here"})
    (run / "config.yaml").write_text(dump_config(gone), encoding="utf-8")
    facts = metadata_of(adapter_of(run))
    assert facts["flash_grpo.base_model"] == "someone/a-model-that-is-not-here"
    assert "flash_grpo.base_sha256" not in facts
    with pytest.raises(ValueError, match="not on this machine, and merging needs its weights"):
        export_run(run, "merged")
    assert not (run / "export" / "merged").exists()


# which checkpoint ------------------------------------------------------------------------------------------------


def test_the_checkpoint_can_be_chosen(run: Path, tiny_folder: Path) -> None:
    model = trained_model(tiny_folder)
    perturb(model, 0.1, seed=9)
    save_checkpoint(run, 40, settings(tiny_folder), dict(model.trainable()), None)
    write_pointers(run, 20, 40)
    for which, update in (("best", "20"), ("latest", "40"), ("20", "20"), ("000040", "40")):
        (file,) = export_run(run, "adapter", which).glob("*.safetensors")
        assert metadata_of(file)["flash_grpo.update"] == update


def test_an_export_reports_its_files(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = tmp_path / "report"
    assert flash_grpo("export", run, "--format", "peft", "--report", report, monkeypatch=monkeypatch) == 0
    result = json.loads((report / "result.json").read_text(encoding="utf-8"))
    assert result["folder"] == str(run / "export" / "peft") and result["metadata"]["flash_grpo.update"] == "20"
    for name, entry in result["files"].items():
        file = run / "export" / "peft" / name
        assert (file.stat().st_size, file_hash(file)) == (entry["size"], entry["sha256"])
    assert [record.type for record in read_events(report)] == ["progress", "progress", "finished"]
    assert flash_grpo("export", run, "--format", "pefft", "--report", report, monkeypatch=monkeypatch) == 2
    assert read_events(report)[-1].data["message"].startswith("unknown export format 'pefft'")
    assert not (report / "result.json").exists()


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        ("30", "no checkpoint of update 30; choose one of 20"),
        ("bset", "best, latest or the number of an update, got 'bset'"),
        ("best", "has no best checkpoint: none was better than the base model.*--checkpoint 20"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_one_sentence(run: Path, which: str, sentence: str) -> None:
    write_pointers(run, None, 20)
    with pytest.raises(ValueError, match=sentence) as caught:
        export_run(run, "adapter", which)
    assert "\n" not in str(caught.value)


# what is refused -------------------------------------------------------------------------------------------------


def broken_run(kind: str, base: Path, folder: Path) -> Path:
    """A run that must not be exported, each for a reason of its own."""
    model = trained_model(base, spread=0.0 if kind == "zero" else 0.1)
    if kind == "nan":
        with torch.no_grad():
            next(weight for name, weight in model.trainable() if "lora_B" in name)[0, 0] = float("nan")
    run = save_run(folder, model, settings(base))
    if kind == "damaged":
        file = run / "checkpoints" / "000020" / "adapter.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
    elif kind == "rank":
        (run / "config.yaml").write_text(dump_config(settings(base, lora_rank=2 * RANK)), encoding="utf-8")
    elif kind == "empty":
        shutil.rmtree(run / "checkpoints")
    elif kind == "no run":
        (run / "config.yaml").unlink()
    elif kind == "torn pointers":
        (run / "pointers.json").write_text('{"best": "0000')
    return run


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("zero", "is not exported: the adapter changes nothing"),
        ("nan", "is not exported: .*not finite"),
        ("damaged", "use another checkpoint"),
        ("rank", "LoRA matrices of rank 8 for blocks.0.attn1.to_k as config.yaml says"),
        ("empty", "has no checkpoint yet"),
        ("no run", "is no run folder"),
        ("torn pointers", "cannot read .*pointers.json.*give --checkpoint 20"),
    ],
)
@pytest.mark.parametrize("target", ["adapter", "peft", "merged"])
def test_what_must_not_be_exported_is_one_sentence_and_leaves_nothing(
    kind: str,
    target: str,
    sentence: str,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = broken_run(kind, tiny_folder, tmp_path / "run")
    assert flash_grpo("export", run, "--format", target, monkeypatch=monkeypatch) == 2
    error = capsys.readouterr().err
    assert re.search(sentence, error) and error.count("\n") == 1, error
    assert list(run.glob("export/*")) == []


def test_full_weights_that_equal_the_base_s_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    model = open_model(tiny_folder)
    model.train_all(keep_base=False)
    run = save_run(tmp_path / "run", model, settings(tiny_folder, adapter="full"))
    with pytest.raises(ValueError, match="its weights equal the base model's"):
        export_run(run, "merged")


def test_another_base_than_the_trained_one_is_refused(run: Path, tiny_folder: Path, tmp_path: Path) -> None:
    config = settings(tiny_folder).model_copy(update={"model": "pocket-micro"})
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    with pytest.raises(ValueError, match="not the model that was trained"):
        export_run(run, "merged")
    assert list((run / "export").iterdir()) == []


def test_an_unknown_format_suggests_the_nearest(run: Path) -> None:
    with pytest.raises(ValueError, match="unknown export format 'adaptor'; did you mean 'adapter'"):
        export_run(run, "adaptor")


# the folder ------------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_earlier_export_is_replaced_and_foreign_content_is_not(run: Path, tiny_folder: Path) -> None:
    folder = export_run(run, "adapter")
    first = files(folder)
    model = trained_model(tiny_folder)
    put_weights(dict(model.trainable()), {n: t + 0.01 for n, t in trained_weights(dict(model.trainable())).items()})
    save_run(run, model, settings(tiny_folder), update=40)
    assert export_run(run, "adapter") == folder
    names = {"first-000040.safetensors", "README.md", "workflow.json", "export.json", "SHA256SUMS"}
    assert {path.name for path in folder.iterdir()} == names
    second = files(folder)
    assert first != second
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds 'notes.txt', which no export of ours wrote"):
        export_run(run, "adapter")
    assert files(folder) == {**second, "notes.txt": b"mine"}


@pytest.mark.parametrize("foreign", ["a file", "a folder of files", "a path below a file"])
def test_what_is_not_ours_is_not_overwritten(
    foreign: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    if foreign == "a folder of files":
        target.mkdir()
        (target / "adapter.safetensors").write_bytes(b"somebody's")
    else:
        target.write_bytes(b"somebody's")
    wanted = target / "below" if foreign == "a path below a file" else target
    before = sorted(tmp_path.rglob("*"))
    assert flash_grpo("export", run, "--output", wanted, monkeypatch=monkeypatch) == 2
    error = capsys.readouterr().err
    assert "with --output" in error and error.count("\n") == 1, error
    assert sorted(tmp_path.rglob("*")) == before
    assert b"somebody's" in (target / "adapter.safetensors" if target.is_dir() else target).read_bytes()


def test_a_full_disk_leaves_the_earlier_export_and_nothing_half(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export_run(run, "merged")
    before = files(run)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("save_file", "write_record"):
        with monkeypatch.context() as patch:
            patch.setattr(f"flash_grpo.{'export_files' if name == 'save_file' else 'export'}.{name}", full)
            assert flash_grpo("export", run, "--format", "merged", monkeypatch=monkeypatch) == 1
        error = capsys.readouterr().err
        assert f"cannot finish the export {folder}: No space left on device; free some space" in error
        assert error.count("\n") == 1
        assert files(run) == before


def test_what_reads_back_differently_is_not_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = export_files.save_file

    def flipped(tensors: dict[str, torch.Tensor], file: Path, metadata: dict[str, str]) -> None:
        written(tensors, file, metadata=metadata)
        content = bytearray(file.read_bytes())
        content[-1] ^= 64
        file.write_bytes(content)

    monkeypatch.setattr(export_files, "save_file", flipped)
    for kind in ("adapter", "peft", "merged"):
        with pytest.raises(RuntimeError, match="read back differently from what was written"):
            export_run(run, kind)
        assert not (run / "export" / kind).exists()
