"""The configuration: presets fit, mistakes get one sentence, nothing heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.config import (
    GROUPS,
    RunConfig,
    build_config,
    dump_config,
    load_config,
    parse_assignments,
    preset_config,
    presets,
    validate_config,
)
from flash_grpo.errors import InputError

EXPECTED = {"pocket", "pocket-long", "micro", "flash-grpo-paper", "wan2.1-1.3b", "wan2.1-14b"}


def test_the_presets_are_these_and_all_fit_the_schema() -> None:
    assert set(presets()) == EXPECTED
    for name, preset in presets().items():
        build_config(name)
        assert preset["description"].endswith(".") or preset["description"].endswith(")"), name
        assert isinstance(preset["verified"], bool)
        assert set(preset["config"]) <= set(RunConfig.model_fields)


def test_presets_of_weights_never_run_are_unverified() -> None:
    for name, preset in presets().items():
        assert preset["verified"] == build_config(name).model.startswith("pocket")


def test_the_paper_preset_is_the_published_recipe() -> None:
    config = build_config("flash-grpo-paper")
    assert (config.height, config.width, config.frames) == (480, 832, 81)
    assert config.prompts_per_update * config.group_size == 192
    assert config.candidates() == tuple(range(10))
    assert (config.noise_level, config.initial_noise, config.branch_noise) == ("flash", "independent", "white")
    assert (config.sampling_steps, config.shift, config.evaluation_steps) == (20, 3.0, 50)
    assert config.guidance_scale == config.deployment_guidance() == 4.5
    assert (config.clip, config.kl_weight, config.learning_rate) == (1e-3, 0.0, 1e-4)


def test_a_preset_extends_another() -> None:
    base, long = preset_config("pocket"), preset_config("pocket-long")
    assert long["model"] == base["model"]
    assert long["updates"] != base["updates"]
    assert build_config("pocket-long").rewards["prompt_following"] == 1


def test_overrides_reach_single_rewards_and_options() -> None:
    config = build_config(
        "pocket", parse_assignments(["rewards.colorfulness=0.5", "reward_options.subject_size.note=hi", "updates=7"])
    )
    assert config.rewards["colorfulness"] == 0.5
    assert config.rewards["subject_size"] == 1
    assert config.reward_options["subject_size"]["note"] == "hi"
    assert config.updates == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("learning_rate=1e-4", 1e-4),
        ("candidate_steps=[0, 2]", [0, 2]),
        ("shift=null", None),
        ("rectify=false", False),
        ("negative_prompt=blurry, dark", "blurry, dark"),
        ("rewards={colorfulness: 1}", {"colorfulness": 1}),
        ("prompts=a=b.txt", "a=b.txt"),
    ],
)
def test_assignments_are_read_as_a_person_means_them(text: str, value: Any) -> None:
    assert list(parse_assignments([text]).values()) == [value]


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("learning_rat=1", "unknown configuration key 'learning_rat'.*'learning_rate'"),
        ("updates", "expected key=value"),
        ("rewards=[1", "not valid YAML"),
        ("updates=0", "updates: .*greater than or equal to 1, got 0"),
        ("updates=many", "updates: .*got 'many'"),
        ("frames=10", "frames: must be 4n\\+1, got 10; the nearest are 9 and 13"),
        ("height=40", "height: must be a multiple of 16, got 40; the nearest are 32 and 48"),
        ("candidate_steps=[5]", "step 5 is outside 0..4"),
        ("candidate_steps=[1, 1]", "distinct step numbers"),
        ("candidate_steps=[]", "at least one"),
        ("rewards={colorfulness: 0}", "at least one reward with a weight"),
        ("noise_level=flahs", "noise_level: .*'flash'"),
        ("learning_rate=.nan", "learning_rate"),
        ("updates.x=1", "'updates' has no parts"),
    ],
)
def test_a_mistake_is_one_sentence(assignment: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        build_config("pocket", parse_assignments([assignment]))
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown preset 'poket'; did you mean 'pocket'"):
        build_config("poket")


def test_every_field_has_a_group_and_a_help_text() -> None:
    properties = RunConfig.model_json_schema()["properties"]
    for name, described in properties.items():
        assert described["group"] in GROUPS, name
        assert described["description"].endswith("."), name


def test_a_written_configuration_reads_back_the_same(tmp_path: Path) -> None:
    config = build_config("pocket-long")
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "cannot read"), (b"a: [", "cannot read"), (b"- 1\n", "expected a mapping")]
)
def test_an_unreadable_configuration_file_is_one_error(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        load_config(path)


def test_unknown_keys_in_a_file_are_refused() -> None:
    with pytest.raises(InputError, match="learning_rat"):
        validate_config({"learning_rat": 1})


def test_candidates_default_to_the_first_half() -> None:
    assert RunConfig(sampling_steps=7).candidates() == (0, 1, 2)
    assert RunConfig(sampling_steps=2).candidates() == (0,)


def test_the_schema_imports_no_torch() -> None:
    code = "import sys, flash_grpo.config; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
