"""The command line as a user meets it: quick help, plain sentences, exit codes, JSON that programs can read."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from flash_grpo import cli
from flash_grpo.commands.planning import parse_candidates
from flash_grpo.config import build_config, dump_config
from flash_grpo.errors import InputError
from flash_grpo.events import Evaluation, Metrics, Progress, RunStarted

GOLDEN = [7.4770, 7.0414, 6.6112, 6.1867, 5.7682, 5.3559, 4.9502, 4.5513, 4.1596, 3.7754]
SCHEDULE = ["schedule", "--steps", "20", "--shift", "3"]


def flash_grpo(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def in_new_process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flash_grpo.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_help_is_quick() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert in_new_process("--help").returncode == 0
        times.append(time.perf_counter() - start)
    print(f"flash-grpo --help: median {statistics.median(times):.2f} s of 5")
    assert min(times) <= 0.5  # the quickest, since other processes only ever slow it down


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "train --help",
        "render --help",
        "download --help",
        "presets --json",
        "models",
        "rewards",
        "config --schema",
    ],
)
def test_what_needs_no_network_imports_no_torch(arguments: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['flash-grpo', *{arguments.split()!r}]\n"
        "from flash_grpo import cli\n"
        "try:\n    cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'diffusers', 'transformers', 'matplotlib', 'numpy', 'av'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train --preset poket", "unknown preset 'poket'; did you mean 'pocket'"),
        ("train --preset pocket --set learning_rat=1", "key 'learning_rat'; did you mean 'learning_rate'"),
        ("train --preset pocket --set frames=10", "frames: must be 4n+1, got 10; the nearest are 9 and 13"),
        ("train --preset pocket --set updates", "expected key=value, got 'updates'"),
        ("train", "expected either --preset NAME or --config FILE, got neither; give exactly one of them"),
        ("train --preset micro --config a.yaml", "expected either --preset NAME or --config FILE, got both"),
        ("train --config nowhere.yaml", "cannot read the configuration nowhere.yaml: "),
        ("evaluate nowhere", "nowhere is no run folder"),
        ("render nowhere --output out --prompt x", "nowhere is no run folder"),
        ("schedule --steps 20 --shift 3 --noise-level flahs", "unknown noise level 'flahs'; did you mean 'flash'"),
        ("schedule --steps 20 --shift 3 --noise-level cps --scheduler eular", "did you mean 'euler'"),
        ("schedule --steps 20 --shift 3 --noise-level cps --candidates 3..20", "within 0..19"),
        ("schedule --steps 20 --shift 3 --noise-level cps --candidates first", "first..last, for example 0..9"),
        ("schedule --steps 20 --shift -3 --noise-level cps", "shift must be a positive number"),
        ("config --preset mirco", "did you mean 'micro'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert flash_grpo(*arguments.split(), monkeypatch=monkeypatch) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", ["trian", "train", "schedule --steps many", "presets --yaml"])
def test_wrong_usage_is_exit_code_2(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash_grpo(*arguments.split(), monkeypatch=monkeypatch) == 2
    assert "flash-grpo" in capsys.readouterr().err


def test_lists_mark_what_was_never_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("presets", "models", "rewards"):
        assert flash_grpo(command, monkeypatch=monkeypatch) == 0
        table = capsys.readouterr().out
        assert flash_grpo(command, "--json", monkeypatch=monkeypatch) == 0
        entries = json.loads(capsys.readouterr().out)
        assert len(entries) >= 4
        for entry in entries:
            line = next(line for line in table.splitlines() if f" {entry['name']} " in line)
            assert ("(unverified)" in line) is not entry["verified"], entry["name"]


def test_prompt_sets_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert flash_grpo("prompts", monkeypatch=monkeypatch) == 0
    table = capsys.readouterr().out
    assert "studio" in table and "food (30)" in table
    flash_grpo("prompts", "--json", monkeypatch=monkeypatch)
    studio = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}["studio"]
    assert studio["counts"]["train"] == 12 * studio["categories"]["food"]["train"]
    flash_grpo("prompts", "studio:heldout:food", monkeypatch=monkeypatch)
    texts = capsys.readouterr().out.splitlines()
    flash_grpo("prompts", "studio:heldout:food", "--json", monkeypatch=monkeypatch)
    rows = json.loads(capsys.readouterr().out)
    assert [row["prompt"] for row in rows] == texts and len(texts) == studio["categories"]["food"]["heldout"]
    assert flash_grpo("prompts", "studio:train:foood", monkeypatch=monkeypatch) == 2
    assert "did you mean 'food'" in capsys.readouterr().err


def test_models_and_presets_name_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flash_grpo("models", "--json", monkeypatch=monkeypatch)
    cards = json.loads(capsys.readouterr().out)
    flash_grpo("presets", "--json", monkeypatch=monkeypatch)
    listed = {preset["name"]: preset for preset in json.loads(capsys.readouterr().out)}
    assert {name for card in cards for name in card["presets"]} == set(listed)
    for card in cards:
        for name in card["presets"]:
            assert listed[name]["model"] in (card["name"], card["source"])
            assert listed[name]["verified"] == card["verified"]


def test_the_configuration_and_its_schema_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash_grpo("config", "--schema", monkeypatch=monkeypatch) == 0
    assert "learning_rate" in json.loads(capsys.readouterr().out)["properties"]
    assert flash_grpo("config", "--preset", "micro", "--set", "updates=3", monkeypatch=monkeypatch) == 0
    assert "updates: 3\n" in capsys.readouterr().out


def schedule_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str
) -> list[dict[str, Any]]:
    assert flash_grpo(*SCHEDULE, *more, "--json", monkeypatch=monkeypatch) == 0
    steps: list[dict[str, Any]] = json.loads(
        capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )["steps"]
    return steps


def test_the_schedule_reproduces_the_published_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = schedule_json(monkeypatch, capsys, "--noise-level", "flash", "--candidates", "0..9")
    keys = ["index", "timestep", "sigma", "noise_level", "lambda", "inverse_lambda", "weight"]
    assert [list(step) for step in steps] == [keys] * 20
    assert [step["inverse_lambda"] for step in steps[:10]] == pytest.approx(GOLDEN, rel=3e-3)
    weights = [step["weight"] for step in steps]
    assert weights[10:] == [None] * 10
    assert statistics.mean(weights[:10]) == pytest.approx(1.0)
    assert [w * statistics.mean(GOLDEN) for w in weights[:10]] == pytest.approx(GOLDEN, rel=6e-3)
    # Negative control: another grid is not the published one.
    euler = schedule_json(monkeypatch, capsys, "--noise-level", "flash", "--scheduler", "euler")
    assert [step["inverse_lambda"] for step in euler[:10]] != pytest.approx(GOLDEN, rel=3e-3)


@pytest.mark.parametrize("rule", ["flash", "flow", "dance", "cps"])
@pytest.mark.parametrize("scheduler", ["unipc", "euler"])
def test_every_rule_prints_finite_numbers_or_null(
    rule: str, scheduler: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = schedule_json(monkeypatch, capsys, "--noise-level", rule, "--scheduler", scheduler, "--eta", "0.5")
    assert [step["weight"] is not None for step in steps] == [True] * 10 + [False] * 10


def test_the_schedule_is_drawn_and_tabled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "schedule.png"
    assert flash_grpo(*SCHEDULE, "--noise-level", "flow", "--plot", str(plot), monkeypatch=monkeypatch) == 0
    assert f"chart: {plot}" in capsys.readouterr().out
    with Image.open(plot) as image:
        assert image.format == "PNG"


def test_candidates_are_a_range_or_one_step() -> None:
    assert parse_candidates("2..4", 20) == [2, 3, 4]
    assert parse_candidates("3", 20) == [3]
    for text in ("4..2", "-1..2", "0..20", "", "1.5"):
        with pytest.raises(InputError, match="expected candidates"):
            parse_candidates(text, 20)


SUMMARY: dict[str, Any] = {
    "status": "done",
    "updates": 2,
    "nfe": 40,
    "cost": 60.0,
    "minutes": 0.1,
    "rewards": {"colorfulness": 1.0},
    "heldout": {"colorfulness": {"before": 0.2, "after": 0.3, "gain": 0.1, "ci95": [0.05, 0.15], "win_rate": 0.9}},
    "best_update": 2,
    "files": {"chart": "chart.png"},
}


def stand_in_trainer(outcome: Exception | None) -> Any:
    """What the trainer looks like from the command line: events, then a summary or an exception."""

    def train(config: Any, folder: Path, preset: str, subscribers: Any) -> dict[str, Any]:
        folder.mkdir(parents=True)
        reward = {"mean": 0.25, "std": 0.1, "min": 0.0, "max": 1.0, "group_spread": 0.1}
        metrics = Metrics(1, {"colorfulness": reward}, {}, 0.1, {}, 0.0, 0.0, None, 0, 1, 1e-4, {}, {}, 1, 1.0, 0.0)
        figures = {"colorfulness": {"mean": 0.3, "ci95": [0.2, 0.4]}}
        for event in (
            RunStarted(config.model_dump(), {}, preset),
            Progress("rollout", 1, 2, 4.0, 75.0, 0.0, 0, 61.0, 88.0),
            metrics,
            Evaluation(1, "validation", figures, 8, best=True),
        ):
            for subscriber in subscribers:
                subscriber(event)
        if outcome is not None:
            raise outcome
        return SUMMARY

    return train


def run_with(outcome: Exception | None, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    from flash_grpo import trainer

    monkeypatch.setattr(trainer, "train", stand_in_trainer(outcome))
    return flash_grpo("train", "--preset", "micro", "--output", str(folder), monkeypatch=monkeypatch)


def test_a_configuration_file_is_trained_with_changes_on_top(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, seen = tmp_path / "mine.yaml", []
    file.write_text(dump_config(build_config("micro", {"seed": 7, "updates": 9})), encoding="utf-8")

    def train(config: Any, folder: Path, preset: str | None, subscribers: Any) -> dict[str, Any]:
        seen.append((config, folder, preset))
        return SUMMARY

    from flash_grpo import trainer

    monkeypatch.setattr(trainer, "train", train)
    monkeypatch.chdir(tmp_path)
    assert flash_grpo("train", "--config", "mine.yaml", "--set", "updates=3", monkeypatch=monkeypatch) == 0
    [(config, folder, preset)] = seen
    assert config == build_config("micro", {"seed": 7, "updates": 3}) and preset is None
    assert config != build_config("micro", {"seed": 7, "updates": 9})
    assert folder.parent == Path("runs") and folder.name.startswith("mine-")
    assert "Training mine.yaml into runs/mine-" in capsys.readouterr().out


def test_a_run_tells_its_progress_and_ends_with_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_with(None, monkeypatch, tmp_path / "run") == 0
    out = capsys.readouterr().out
    assert "update 1/2: colorfulness 0.250, 60-90 s left" in out
    assert "validation after update 1: colorfulness 0.300, the best so far" in out
    assert "0.200 → 0.300" in out
    assert f"chart: {tmp_path / 'run' / 'chart.png'}" in out


@pytest.mark.parametrize(("status", "code"), [("paused", 75), ("interrupted", 130)])
def test_a_stopped_run_has_its_own_exit_code(
    status: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from flash_grpo.trainer import Interrupted

    assert run_with(Interrupted(status), monkeypatch, tmp_path / "run") == code
    assert f"the run was {status}" in capsys.readouterr().err


def test_an_unexpected_error_is_a_sentence_and_its_traceback_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_with(RuntimeError("the disk is full\nsecond line"), monkeypatch, tmp_path / "run") == 1
    error = capsys.readouterr().err
    log = tmp_path / "run" / "log.txt"
    assert error == f"flash-grpo: the run failed: the disk is full; details are in {log}\n"
    assert log.read_text(encoding="utf-8").count("Traceback") == 1


def test_an_error_outside_a_run_names_a_log_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flash_grpo import config

    monkeypatch.setattr(config, "presets", lambda: 1 / 0)
    assert flash_grpo("presets", monkeypatch=monkeypatch) == 1
    message, _, log = capsys.readouterr().err.strip().partition("; details are in ")
    assert message == "flash-grpo: division by zero"
    assert "ZeroDivisionError" in Path(log).read_text(encoding="utf-8")
    Path(log).unlink()


def test_input_that_a_run_cannot_use_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_with(InputError("the prompt file x.txt is empty"), monkeypatch, tmp_path / "run") == 2
    assert capsys.readouterr().err == "flash-grpo: the prompt file x.txt is empty\n"


@pytest.fixture
def plugin_path(tmp_path: Path) -> str:
    """A package on disk that adds two commands, one of which cannot be imported."""
    shiny = "print('shiny was imported')\ndef hello(name: str = 'you'):\n    print('hello', name)\n"
    (tmp_path / "shiny.py").write_text(shiny)
    (tmp_path / "broken.py").write_text("import a_module_that_is_missing\n")
    meta = tmp_path / "shiny_extra-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: shiny-extra\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[flash_grpo.commands]\nhello = shiny:hello\nbroken = broken:app\n")
    return str(tmp_path)


def test_help_lists_commands_of_other_packages_without_importing_them(plugin_path: str) -> None:
    listed = in_new_process("--help", PYTHONPATH=plugin_path)
    assert listed.returncode == 0
    assert "From shiny-extra." in listed.stdout
    assert "shiny was imported" not in listed.stdout


def test_a_command_of_another_package_runs(plugin_path: str) -> None:
    called = in_new_process("hello", "--name", "Ada", PYTHONPATH=plugin_path)
    assert called.stdout == "shiny was imported\nhello Ada\n"


def test_a_command_that_cannot_be_imported_says_what_is_missing(plugin_path: str) -> None:
    called = in_new_process("broken", PYTHONPATH=plugin_path)
    assert called.returncode == 2
    assert "'broken' of shiny-extra cannot be loaded (No module named 'a_module_that_is_missing')" in called.stderr
