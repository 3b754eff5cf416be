"""Plans: counts that agree with the networks and with real runs, memory, disk, and advice that holds."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import UMT5Config, UMT5EncoderModel

from flash_grpo.config import RunConfig, build_config, parse_assignments, with_overrides
from flash_grpo.errors import InputError
from flash_grpo.events import read_events
from flash_grpo.models.registry import built_in_folder, load_model
from flash_grpo.plan import GB, plain, plan, plan_for
from flash_grpo.planning.advice import advise
from flash_grpo.planning.architecture import BUILT_IN, load_pipeline, shipped
from flash_grpo.planning.footprint import backward_bytes, denoiser_bytes
from flash_grpo.planning.speed import assumed_speed, gpus, speed_named
from flash_grpo.planning.workload import backward_cost, micro_batch_states, rollout_spending, run_spending, validations
from flash_grpo.replay import micro_batches
from flash_grpo.rollout import GroupPlan, GroupRollout
from flash_grpo.trainer import train
from tests.tiny import config_for

COMMAND = [sys.executable, "-m", "flash_grpo.cli", "plan"]
WAN = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"


def configuration_of(model: str, part: str) -> dict[str, Any]:
    if model in shipped():
        return dict(shipped()[model][part])
    found: dict[str, Any] = json.loads((built_in_folder(model) / part / "config.json").read_text())
    return found


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# architecture ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*BUILT_IN, *shipped()])
def test_parameters_are_those_of_the_networks(model: str) -> None:
    pipeline = load_pipeline(model)
    with torch.device("meta"):
        denoiser = WanTransformer3DModel.from_config(configuration_of(model, "transformer"))
        autoencoder = AutoencoderKLWan.from_config(configuration_of(model, "vae"))
        encoder = UMT5EncoderModel(UMT5Config(**configuration_of(model, "text_encoder")))
    assert pipeline.denoiser.parameters() == count(denoiser)
    assert pipeline.autoencoder.parameters() == count(autoencoder)
    assert pipeline.text_encoder.parameters() == count(encoder)
    deeper = dataclasses.replace(pipeline.denoiser, layers=pipeline.denoiser.layers + 1)
    assert deeper.parameters() != count(denoiser), "one layer more must be seen"


def test_a_local_folder_is_read(tiny_folder: Path) -> None:
    model = load_model(config_for(tiny_folder))
    pipeline = load_pipeline(str(tiny_folder))
    assert pipeline.denoiser.parameters() == count(model.denoiser)
    assert pipeline.latent_shape(9, 32, 48) == model.latent_shape(9, 32, 48)


@pytest.mark.parametrize("targets", [["to_q", "to_k", "to_v", "to_out.0"], ["ffn.net.2"], ["proj_out", "attn2.to_k"]])
def test_adapter_parameters_and_weights_are_those_of_the_model(targets: list[str]) -> None:
    config = build_config("micro", {"lora_targets": targets, "lora_rank": 5, "dtype": "bfloat16"})
    model = load_model(config, torch.device("cpu"))
    denoiser = load_pipeline("pocket-micro").denoiser
    loaded = sum(p.numel() * p.element_size() for p in model.denoiser.parameters())
    assert denoiser_bytes(config, denoiser) == loaded
    assert denoiser_bytes(with_overrides(config, {"dtype": "float32"}), denoiser) != loaded
    model.add_adapter(5, 10, targets, "gaussian")
    assert denoiser.lora_parameters(5, targets) == sum(p.numel() for _, p in model.trainable())


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(InputError, match="to_z"):
        plan(build_config("micro", {"lora_targets": ["to_z"]}))


def test_operations_are_those_that_torch_counts() -> None:
    config = build_config("pocket")
    model, pipeline = load_model(config), load_pipeline("pocket")
    shape = model.latent_shape(9, 32, 48)
    latents = torch.randn(1, *shape)
    text = torch.randn(1, 24, pipeline.denoiser.text_dim)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            model.velocity(latents, torch.full((1,), 500.0), text, text, 1.0)
        with FlopCounterMode(display=False) as decode:
            model.decode(latents)
    tokens = shape[1] * shape[2] * shape[3] // 4
    assert pipeline.denoiser.flops(tokens, 24) == pytest.approx(forward.get_total_flops(), rel=1e-6)
    assert pipeline.autoencoder.decode_flops(shape[1], shape[2] * shape[3]) == pytest.approx(
        decode.get_total_flops(), rel=1e-6
    )
    assert pipeline.denoiser.flops(tokens + 1, 24) != pytest.approx(forward.get_total_flops(), rel=1e-6)


# cost --------------------------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "shared": {"kl_weight": 0.1, "inner_updates": 2, "evaluate_every": 2, "ema_decay": 0.5},
    "independent": {"initial_noise": "independent", "guidance_scale": 1, "evaluation_guidance_scale": 2.5},
    "checkpointing": {"gradient_checkpointing": True, "adapter": "full", "candidate_steps": [0, 2, 3]},
}


def run_config(folder: Path, name: str) -> RunConfig:
    small = {
        "updates": 3,
        "prompts_per_update": 2,
        "group_size": 3,
        "validation_limit": 3,
        "heldout_limit": 5,
        "evaluation_steps": 4,
        "rewards": {"colorfulness": 1.0},
        "checks": False,
    }
    return config_for(folder, **{**small, **RUNS[name]})


@pytest.fixture(scope="module")
def real_runs(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RunConfig, Path]]:
    runs = {}
    for name in RUNS:
        config = run_config(tiny_folder, name)
        folder = tmp_path_factory.mktemp("planned") / name
        train(config, folder)
        runs[name] = (config, folder)
    return runs


@pytest.mark.parametrize("name", sorted(RUNS))
def test_cost_and_nfe_are_what_a_real_run_spends(real_runs: dict[str, tuple[RunConfig, Path]], name: str) -> None:
    config, folder = real_runs[name]
    planned = plan(config)
    summary = json.loads((folder / "summary.json").read_text())
    assert planned.total.nfe == summary["nfe"]
    assert planned.total.cost == pytest.approx(summary["cost"], rel=1e-9)
    metrics = [record.data for record in read_events(folder) if record.type == "metrics"]
    assert len(metrics) == config.updates
    for update, entry in enumerate(metrics):
        assert entry["cost"]["rollout"] == pytest.approx(rollout_spending(config, update).cost, rel=1e-9)
        assert entry["cost"]["replay"] == pytest.approx(planned.spending["replay"].cost / config.updates, rel=1e-9)
    assert sum(entry["cost"]["rollout"] for entry in metrics) == pytest.approx(planned.spending["rollout"].cost)
    other = with_overrides(config, {"group_size": 4})
    assert run_spending(other, 3, 5)["rollout"].nfe != planned.spending["rollout"].nfe


def test_whole_runs_sum_up_the_draws_of_their_updates() -> None:
    config = build_config("wan2.1-1.3b", {"updates": 23, "prompts_per_update": 7})
    drawn = sum(rollout_spending(config, update).nfe for update in range(23))
    assert run_spending(config, 1, 1)["rollout"].nfe == drawn
    assert run_spending(with_overrides(config, {"candidate_steps": [7]}), 1, 1)["rollout"].nfe != drawn


def test_the_ratio_of_backwards_is_the_models() -> None:
    ratios = set()
    for adapter in ("lora", "full"):
        for checkpointing in (False, True):
            config = build_config("micro", {"adapter": adapter, "gradient_checkpointing": checkpointing})
            model = load_model(config)
            if adapter == "lora":
                model.add_adapter(4, 8, ["to_q"], "gaussian")
            if checkpointing:
                model.enable_gradient_checkpointing()
            assert backward_cost(config) == pytest.approx(model.backward_cost)
            ratios.add(backward_cost(config))
    assert len(ratios) == 4


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("groups", "members", "batch"), [(5, 3, 2), (4, 6, 4), (3, 2, 8), (1, 7, 3)])
def test_micro_batches_are_those_of_the_replay(groups: int, members: int, batch: int, shared: bool) -> None:
    rollouts = [
        GroupRollout(
            GroupPlan(group, 0, 0),
            torch.zeros(members, 1),
            state=torch.zeros(1 if shared else members, 1),
            next_states=torch.zeros(members, 1),
        )
        for group in range(groups)
    ]
    real = [
        sum(unit.states for unit in units) for units in micro_batches(rollouts, torch.zeros(groups, members), batch)
    ]
    assert micro_batch_states(groups, members, batch, shared) == real


def test_validations_fall_due_as_in_a_run() -> None:
    def number(updates: int, every: int) -> int:
        return validations(build_config("micro", {"updates": updates, "evaluate_every": every}))

    assert [number(8, 4), number(9, 4), number(3, 4), number(5, 0)] == [2, 3, 1, 1]


# memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_what_a_backward_keeps_is_what_autograd_saves(dtype: str, adapter: str) -> None:
    values = {"model": "pocket", "dtype": dtype, "adapter": adapter, "height": 96, "width": 96, "frames": 9}
    config = build_config("pocket", values)
    model, denoiser = load_model(config, torch.device("cpu")), load_pipeline("pocket").denoiser
    if adapter == "lora":
        model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, "gaussian")
    else:
        model.train_all(keep_base=False)
    shape = model.latent_shape(9, 96, 96)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.denoiser.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    text = torch.randn(2, 24, denoiser.text_dim)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = model.velocity(torch.randn(2, *shape), torch.full((2,), 500.0), text, text[:1], 3.0)
    tokens = 4 * shape[1] * shape[2] * shape[3] // 4
    assert result.requires_grad
    planned = backward_bytes(config, denoiser, tokens, 4 * 24)
    # The peak is what is kept and the backward of one layer, a sixth at these four layers.
    assert 0.7 < sum(saved.values()) / planned < 1.02
    fewer = dataclasses.replace(denoiser, layers=2)
    assert not 0.7 < sum(saved.values()) / backward_bytes(config, fewer, tokens, 4 * 24) < 1.02


def test_the_measured_peak_is_near_the_planned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import memory_plan

    shape = next(shape for shape in memory_plan.SHAPES if shape.name == "lora-kl-ema")
    assert not shape.fit, "the constants must not come from the shape that judges them"
    memory_plan.build(shape, tmp_path / "pipeline")
    measured = memory_plan.peaks_apart(shape.name, tmp_path / "pipeline")
    planned = memory_plan.predict(shape).peaks()
    for phase in memory_plan.PHASES:
        assert planned[phase] == pytest.approx(measured[phase], rel=0.2), phase
    sparing = dataclasses.replace(shape, config={**shape.config, "gradient_checkpointing": True})
    assert memory_plan.predict(sparing).peaks()["replay"] != pytest.approx(measured["replay"], rel=0.2)


def test_memory_moves_with_what_causes_it() -> None:
    config = build_config("wan2.1-1.3b")

    def peaks(**overrides: Any) -> dict[str, float]:
        return plan(with_overrides(config, overrides)).footprint.peaks()

    usual = peaks()
    assert peaks(gradient_checkpointing=False)["replay"] > 3 * usual["replay"]
    assert peaks(rollout_batch=2)["rollout"] < usual["rollout"]
    assert peaks(decode_batch=2)["decode"] > 1.4 * usual["decode"]
    assert peaks(replay_batch=2)["replay"] > 1.3 * usual["replay"]
    assert peaks(adapter="full")["step"] > 5 * usual["step"]
    assert peaks(text_encoder_device="cpu")["setup"] < usual["setup"] - 10 * GB
    assert peaks(frames=17)["decode"] < usual["decode"]


def test_frames_and_embeddings_rest_beside_a_gpu_and_on_a_cpu() -> None:
    config = build_config("wan2.1-1.3b")
    gpu, cpu = plan(config, kind="gpu").footprint, plan(config, kind="cpu").footprint
    assert gpu.host["decode"]["frames"] == cpu.phases["decode"]["frames"] > 1e9
    assert "frames" not in gpu.phases["decode"]
    assert not cpu.host


def test_prompts_can_be_encoded_beside_the_device() -> None:
    config = build_config("micro", {"text_encoder_device": "cpu"})
    expected = load_model(build_config("micro"), torch.device("cpu")).encode_prompts(["a red circle"], "")
    apart = load_model(config, torch.device("meta")).encode_prompts(["a red circle"], "")
    assert torch.equal(apart.prompts[0], expected.prompts[0])
    with pytest.raises(RuntimeError):  # the control: together with the networks there is nothing to read
        load_model(build_config("micro"), torch.device("meta")).encode_prompts(["a red circle"], "")


def test_what_is_written_twice_to_spare_the_imports_agrees() -> None:
    from flash_grpo import video
    from flash_grpo.models import registry
    from flash_grpo.planning import disk

    assert BUILT_IN == registry.BUILT_IN
    assert disk.SHOWN_AT_LEAST == video.SHOWN_AT_LEAST


# disk and time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shared", "checkpointing"])
def test_checkpoints_are_as_large_as_planned(real_runs: dict[str, tuple[RunConfig, Path]], name: str) -> None:
    config, folder = real_runs[name]
    newest = max((folder / "checkpoints").iterdir())
    size = sum(file.stat().st_size for file in newest.rglob("*.safetensors") if file.name != "random.safetensors")
    planned = plan(config).disk
    assert planned.checkpoint == pytest.approx(size, rel=0.2)  # tiny tensors: headers weigh in
    whole = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert whole < planned.most + 1e6, "logs aside"


def test_time_follows_the_speed() -> None:
    config = build_config("wan2.1-1.3b")
    slow, fast = (plan(config, speed=speed_named(text, config, load_pipeline(WAN))) for text in ("100", "200"))
    assert slow.duration is not None and fast.duration is not None
    for phase in ("rollout", "decode", "replay"):
        assert slow.duration.run[phase] == pytest.approx(2 * fast.duration.run[phase])
    assert slow.duration.run["evaluate"] > fast.duration.run["evaluate"]
    shared = plan(config, devices=4, speed=speed_named("100", config, load_pipeline(WAN))).duration
    assert shared is not None
    assert shared.update["rollout"] == pytest.approx(slow.duration.update["rollout"] / 4)
    assert plan(config).duration is None
    assert assumed_speed("h100", "bfloat16").source.startswith("assumed")


def test_time_is_a_range_by_what_the_speed_rests_on() -> None:
    config = build_config("wan2.1-1.3b")
    assumed = plan(config, speed=assumed_speed("H100", "bfloat16")).duration
    given = plan(config, speed=speed_named("396", config, load_pipeline(WAN))).duration
    assert assumed is not None and given is not None
    for found in (assumed, given):
        assert found.range[0] < found.total < found.range[1]
    width = {found.speed.basis: found.range[1] / found.range[0] for found in (assumed, given)}
    assert width["assumed"] > 3 * width["given"]
    ended = plan(config.model_copy(update={"minutes": 30.0}), speed=assumed_speed("H100", "bfloat16")).duration
    assert ended is not None and 1800 < ended.range[1] < assumed.range[1] - 3600


def test_this_machine_can_be_measured() -> None:
    config = build_config("micro", {"threads": 1})
    speed = speed_named("measure", config, load_pipeline("pocket-micro"))
    assert 1e6 < speed.denoiser < 1e15
    assert 1e6 < speed.decoder < 1e15
    assert "measured" in speed.source


@pytest.mark.parametrize("text", ["fast", "0", "-3", "nan"])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="TFLOP/s"):
        speed_named(text, build_config("micro"), load_pipeline("pocket-micro"))


# advice ------------------------------------------------------------------------------------------------------------

TIGHT = [("wan2.1-1.3b", 15.0, {}), ("wan2.1-14b", 48.0, {}), ("wan2.1-1.3b", 16.0, {"gradient_checkpointing": False})]


@pytest.mark.parametrize(("preset", "memory", "overrides"), TIGHT)
def test_every_change_does_what_it_says(preset: str, memory: float, overrides: dict[str, Any]) -> None:
    config = build_config(preset, overrides)
    planned = plan_for(config, memory_gb=memory, gpu="H100")
    assert planned.fits is False and planned.duration is not None
    advice = advise(planned)
    assert advice.changes and advice.combination is not None
    for change in (*advice.changes, advice.combination):
        changed = with_overrides(config, parse_assignments(change.assignments()))
        again = plan_for(changed, memory_gb=memory, gpu="H100")
        assert again.duration is not None
        assert again.footprint.highest() == pytest.approx(change.peak)
        assert planned.footprint.highest() - change.peak == pytest.approx(change.saves)
        assert again.duration.total / planned.duration.total - 1 == pytest.approx(change.extra_time, abs=1e-9)
        assert change.fits is again.fits
    assert advice.combination.fits
    ranks = [(not change.harmless, round(max(0.0, change.extra_time), 4)) for change in advice.changes]
    assert ranks == sorted(ranks)


def test_what_keeps_the_result_is_enough_where_it_can_be() -> None:
    planned = plan(build_config("wan2.1-1.3b", {"rollout_batch": 64, "gradient_checkpointing": False}), memory_gb=20)
    combination = advise(planned).combination
    assert combination is not None and combination.harmless and combination.fits
    assert "gradient_checkpointing" in combination.values


def test_nothing_is_advised_where_a_run_fits_or_nothing_helps() -> None:
    config = build_config("wan2.1-1.3b")
    fitting = advise(plan(config, memory_gb=80))
    assert not fitting.changes and fitting.combination is None
    assert advise(plan(config, memory_gb=1)).combination is None
    assert plan(config).fits is None and not advise(plan(config)).changes


# command line and bad input ----------------------------------------------------------------------------------------


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environment)


def test_the_command_prints_a_plan_and_its_json() -> None:
    shown = call("--preset", "wan2.1-14b", "--memory", "48", "--gpu", "L40S", "--devices", "2")
    assert shown.returncode == 0, shown.stderr
    for word in ("does not fit", "replay", "NFE", "disk", "assumed", "What to change", "--set"):
        assert word in shown.stdout
    told = call("--preset", "wan2.1-1.3b", "--set", "updates=7", "--memory", "24", "--json")
    assert told.returncode == 0, told.stderr
    data = json.loads(told.stdout)
    assert data["memory"]["fits"] is True
    assert data["time"] is None
    assert data["advice"] == {"changes": [], "combination": None}
    expected = plain(plan(build_config("wan2.1-1.3b", {"updates": 7}), memory_gb=24))
    assert data["cost"] == json.loads(json.dumps(expected["cost"]))


def test_planning_needs_no_torch() -> None:
    code = (
        "import sys\nfrom flash_grpo.planning.advice import advise\nfrom flash_grpo.config import build_config\n"
        "from flash_grpo.plan import plan, plain\nimport flash_grpo.planning.report\n"
        "p = plan(build_config('wan2.1-14b'), memory_gb=48)\nplain(p), advise(p)\n"
        "print([name for name in ('torch', 'diffusers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_bad_input_gets_a_sentence(tmp_path: Path) -> None:
    config = build_config("micro")
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    for overrides, told in (
        ({"model": "someone/some-model"}, "its configuration is not here"),
        ({"model": str(tmp_path)}, "FluxPipeline"),
        ({"model": str(tmp_path.parent)}, "model_index.json is missing"),
        ({"rewards": {"beauty": 1.0}}, "unknown reward 'beauty'"),
    ):
        with pytest.raises(InputError, match=told):
            plan(with_overrides(config, overrides))
    with pytest.raises(InputError, match="does not divide among 3"):
        plan(config, devices=3)
    with pytest.raises(InputError, match="at least 1 device"):
        plan(config, devices=0)
    with pytest.raises(InputError, match="above 0 GB"):
        plan(config, memory_gb=0)
    with pytest.raises(InputError, match="unknown GPU"):
        plan_for(config, gpu="H1000")
    assert set(gpus()) > {"H100", "RTX-4090"}
    refused = call("--preset", "micro", "--set", "model=someone/some-model")
    assert refused.returncode == 2
    assert refused.stderr.startswith("flash-grpo: ") and "Traceback" not in refused.stderr


def test_broken_configurations_are_told(tmp_path: Path, tiny_folder: Path) -> None:
    for part in ("transformer", "vae", "text_encoder"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "config.json").write_bytes((tiny_folder / part / "config.json").read_bytes())
    (tmp_path / "model_index.json").write_bytes((tiny_folder / "model_index.json").read_bytes())
    assert load_pipeline(str(tmp_path)) == load_pipeline(str(tiny_folder))
    for content, told in ((b"{", "cannot read"), (b"[]", "expected an object"), (b"{}", "not that of a Wan")):
        (tmp_path / "transformer" / "config.json").write_bytes(content)
        with pytest.raises(InputError, match=told):
            load_pipeline(str(tmp_path))
    lacking = json.loads((tiny_folder / "transformer" / "config.json").read_text())
    del lacking["num_layers"]
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(lacking))
    with pytest.raises(InputError, match="num_layers"):
        load_pipeline(str(tmp_path))


def test_prompt_files_to_come_are_assumed_and_broken_ones_told(tmp_path: Path) -> None:
    planned = plan(build_config("flash-grpo-paper"))
    assert (planned.prompts.validation, planned.prompts.heldout) == (32, 300)
    assert any("not found" in note for note in planned.notes)
    broken = tmp_path / "prompts.txt"
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        plan(build_config("micro", {"prompts": str(broken)}))
