"""Bad input and bad luck, as a user meets them: one clear sentence, an exit code, nothing lost or half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flash_grpo import cli, trainer
from flash_grpo.config import build_config
from flash_grpo.events import read_events
from tests.tiny import CAPTIONS, NEGATIVE

Train = Callable[..., "Outcome"]

REWARDS = """
import torch

def fine(videos):
    return videos.frames.mean((1, 2, 3, 4))

def spins(videos):
    while True:
        pass

def computes(videos):
    matrix = torch.eye(300)
    while True:
        matrix = matrix @ matrix

def raising(videos):
    raise ValueError("the judge has\\nleft")

def leaving(videos):
    raise SystemExit(0)

def not_a_number(videos):
    return [float("nan")] * len(videos)

def short(videos):
    return fine(videos)[:-1]

def square(videos):
    return fine(videos)[:, None]

def words(videos):
    return ["good"] * len(videos)

def complex_numbers(videos):
    return fine(videos) * 1j

class Unmade:
    groupwise = False

    def __init__(self):
        raise OSError("no such weights")
"""
SMALL = {
    "negative_prompt": NEGATIVE,
    "height": 32,
    "width": 32,
    "frames": 5,
    "device": "cpu",
    "threads": 1,
    "sampling_steps": 3,
    "candidate_steps": [0],
    "evaluation_steps": 1,
    "prompts_per_update": 1,
    "group_size": 2,
    "updates": 1,
    "validation_limit": 2,
    "heldout_limit": 2,
    "videos_saved": 1,
    "rewards": {"bad_rewards:fine": 1},
}


class Outcome:
    """What a command left: exit code, what it said, and where."""

    def __init__(self, code: int, out: str, err: str, folder: Path) -> None:
        self.code, self.out, self.err, self.folder = code, out, err, folder

    def says(self, sentence: str) -> None:
        """The one line on standard error is this sentence (a pattern), whatever the length of its paths."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert re.search(sentence, lines[0]), lines[0]
        assert "Traceback" not in self.out

    def left_nothing(self) -> None:
        """The run was refused while it was set up: it left at most its own story, and nothing half-written."""
        if self.folder.is_dir():
            story = {"config.yaml", "events.jsonl", "log.txt", "summary.json", "control", "lock"}
            assert {path.name for path in self.folder.iterdir()} <= story

    def is_a_failed_run(self) -> None:
        """Folder, events and summary agree on the failure, and nothing is half-written."""
        records = read_events(self.folder)
        assert records[-1].type == "failed"
        assert json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))["status"] == "failed"
        assert "Traceback" in (self.folder / "log.txt").read_text(encoding="utf-8")
        assert list(self.folder.rglob(".*")) == []


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a user works in, with a module of rewards."""
    (tmp_path / "bad_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_rewards", raising=False)
    return tmp_path


def arguments(base: Path, settings: dict[str, Any]) -> list[str]:
    values = {"model": str(base), **SMALL, **settings}
    return [f"--set={key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


@pytest.fixture
def call(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Train:
    """Calls the command line in this process."""

    def flash_grpo(*words: object, folder: Path = workplace) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        monkeypatch.delitem(sys.modules, "bad_rewards", raising=False)
        return Outcome(stop.value.code if isinstance(stop.value.code, int) else 0, captured.out, captured.err, folder)

    return flash_grpo


@pytest.fixture
def train(call: Train, tiny_folder: Path, workplace: Path) -> Train:
    """Trains a very small run into `output`; keyword arguments are configuration keys."""

    def start(output: Path | None = None, **settings: Any) -> Outcome:
        folder = output or workplace / "run"
        return call("train", "--preset", "micro", "--output", folder, *arguments(tiny_folder, settings), folder=folder)

    return start


# prompts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a cat\ncaf\xe9\n", r"expected UTF-8 text in p\.txt, got byte 0xe9 at offset 9; save the file as UTF-8"),
        ("a cat\n".encode("utf-16"), r"expected UTF-8 text in p\.txt, got byte 0xff at offset 0; save the file as"),
        (b"", r"expected at least one prompt in p\.txt, got none; write one prompt a line"),
        (b"\n \n\t\n", r"expected at least one prompt in p\.txt, got none; write one prompt a line"),
        (None, r"the prompt file p\.txt does not exist; check the path"),
    ],
)
def test_prompt_files_that_cannot_be_used(content: bytes | None, sentence: str, workplace: Path, train: Train) -> None:
    if content is not None:
        (workplace / "p.txt").write_bytes(content)
    outcome = train(prompts="p.txt")
    assert outcome.code == 2
    outcome.says(sentence)
    outcome.left_nothing()


def test_prompts_that_are_trained_on_and_judged_by(workplace: Path, train: Train) -> None:
    (workplace / "p.txt").write_text("\n".join(CAPTIONS), encoding="utf-8")
    outcome = train(prompts="p.txt", validation_prompts="p.txt")
    assert outcome.code == 2
    outcome.says("validation_prompts holds 2 prompts that are trained on, such as 'a small red circle.*; remove them")
    outcome.left_nothing()


def warnings(run: Path) -> dict[str, str]:
    """The run's warnings by code."""
    return {str(r.data["code"]): str(r.data["message"]) for r in read_events(run) if r.type == "warning"}


def test_prompts_that_repeat_or_are_too_long_are_told(workplace: Path, train: Train) -> None:
    (workplace / "p.txt").write_text(
        f"{CAPTIONS[0]}\n\n{CAPTIONS[0]}\n{CAPTIONS[1]}{' and on' * 30}\n", encoding="utf-8"
    )
    outcome = train(prompts="p.txt", prompts_per_update=3)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    told = warnings(outcome.folder)
    assert told["repeated_prompts"].startswith("prompts repeats 1 of its 3 prompts, such as 'a small red circle")
    assert told["cut_prompts"].startswith("1 of 7 prompts are longer than 24 text tokens and what follows is cut, such")
    (workplace / "p.txt").write_text("\n".join(CAPTIONS[:2]), encoding="utf-8")
    told = warnings(train(workplace / "other", prompts="p.txt").folder)
    assert not {"repeated_prompts", "cut_prompts"} & told.keys()


def test_a_run_that_was_refused_can_be_started_again_in_its_folder(workplace: Path, train: Train) -> None:
    assert train(prompts="p.txt").code == 2
    (workplace / "p.txt").write_text("\n".join(CAPTIONS), encoding="utf-8")
    outcome = train(prompts="p.txt")
    assert outcome.code == 0, outcome.err


def test_a_million_prompts_with_blank_lines_and_duplicates_train(workplace: Path, train: Train) -> None:
    with (workplace / "p.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"{CAPTIONS[index % 2]}, take {index // 2}\n\n" for index in range(999_000))
        file.writelines(f"{CAPTIONS[0]}\n" for _ in range(1000))
    outcome = train(prompts="p.txt", updates=2)
    assert outcome.code == 0, outcome.err
    assert json.loads((outcome.folder / "summary.json").read_text(encoding="utf-8"))["updates"] == 2


# configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"group_size": 1},
            r"group_size: .*at least|group_size: .*greater than or equal to 2, got 1 \(rollouts per prompt",
        ),
        (
            {"candidate_steps": [2]},
            r"candidate_steps: step 2 is outside 0\.\.1; with sampling_steps 3 the last step is",
        ),
        ({"candidate_steps": [-1]}, r"candidate_steps: must be distinct step numbers from 0.*got \[-1\]"),
        ({"candidate_steps": []}, r"candidate_steps: must be distinct step numbers from 0, at least one, got \[\]"),
        ({"reward_timeout": 0}, r"reward_timeout: .*greater than 0, got 0 \(longest one call of a reward may take"),
        ({"rewards": {"bad_rewards:fine": 0}}, "rewards: needs at least one reward with a weight other than 0"),
        ({"learning_rate": "fast"}, r"learning_rate: .*got 'fast' \(peak learning rate\)"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], sentence: str, train: Train) -> None:
    outcome = train(**settings)
    assert outcome.code == 2
    outcome.says(sentence)
    assert not outcome.folder.exists()


# the output folder -------------------------------------------------------------------------------------------------


def test_output_folders_that_cannot_be_made(workplace: Path, train: Train) -> None:
    (workplace / "file").write_text("somebody's")
    for folder, sentence in (
        (workplace / "file" / "run", r"cannot write to the output folder .*file/run: Not a directory; choose another"),
        (workplace / "file", r"the output folder .*file is not empty; choose another with --output"),
        (Path("/proc/run"), r"cannot write to the output folder /proc/run: .*; choose another"),
    ):
        outcome = train(folder)
        assert outcome.code == 2
        outcome.says(sentence)
    assert (workplace / "file").read_text() == "somebody's"


def test_output_folders_of_others_are_left_alone(workplace: Path, train: Train) -> None:
    first = train()
    assert first.code == 0, first.err
    before = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    again = train()
    assert again.code == 2
    again.says("the output folder .*run (holds another run|is not empty); choose another with --output")
    assert {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()} == before
    for name in ("notes.txt", "config.yaml"):  # the latter is also called as one of ours
        mine = workplace / f"with {name}"
        mine.mkdir()
        (mine / name).write_text("mine")
        foreign = train(mine)
        assert foreign.code == 2
        foreign.says("the output folder .*with .* (is not empty|holds another run); choose another with --output")
        assert (mine / name).read_text() == "mine"


# rewards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        (
            "raising",
            1,
            r"reward 'bad_rewards:raising' raised ValueError \(the judge has left\); mend it or take it out",
        ),
        ("leaving", 1, r"reward 'bad_rewards:leaving' raised SystemExit \(0\); mend it or take it out"),
        (
            "not_a_number",
            2,
            r"'bad_rewards:not_a_number' gave nan for video 0 \('.*'\), \d of \d values are not finite",
        ),
        ("short", 2, r"reward 'bad_rewards:short' answered with shape \[\d\] for \d videos; return exactly one float"),
        ("square", 2, r"reward 'bad_rewards:square' answered with shape \[\d, 1\] for \d videos; return exactly one"),
        ("words", 2, r"reward function 'words' answered with a list that is no list of numbers; return one float"),
        ("complex_numbers", 2, r"'bad_rewards:complex_numbers' answered with torch.complex64 numbers; return one real"),
    ],
)
def test_rewards_that_do_not_answer_with_a_float_per_video(name: str, code: int, sentence: str, train: Train) -> None:
    outcome = train(rewards={"bad_rewards:fine": 1, f"bad_rewards:{name}": 0})
    assert outcome.code == code
    outcome.says(sentence)
    outcome.is_a_failed_run()


@pytest.mark.parametrize(
    ("reward", "code", "sentence"),
    [
        (
            "bad_rewards:Unmade",
            1,
            "could not be made .OSError: no such weights, at bad_rewards.py line [0-9]+.; mend it",
        ),
        ("bad_rewards:fin", 2, "unknown name in module 'bad_rewards' 'fin'; did you mean 'fine'"),
        ("torn:reward", 2, "its module was found but cannot be imported .SyntaxError: .*torn.py, line 1"),
        ("no_such_module:reward", 2, "no module 'no_such_module'; run from the folder that holds it or install it"),
        ("subject_sise", 2, "unknown reward 'subject_sise'; did you mean 'subject_size'"),
    ],
)
def test_rewards_that_cannot_be_made(reward: str, code: int, sentence: str, workplace: Path, train: Train) -> None:
    (workplace / "torn.py").write_text("def reward(videos:\n")
    outcome = train(rewards={reward: 1})
    assert outcome.code == code
    outcome.says(sentence)


# bad luck ----------------------------------------------------------------------------------------------------------


def in_new_process(folder: Path, *words: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own; `limit` is the largest file it may write, in bytes."""
    code = "from flash_grpo.cli import main; main()"
    if limit is not None:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); {code}"
    environment = {**os.environ, "PYTHONPATH": f"{Path(cli.__file__).parents[1]}", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=300)


def test_a_disk_that_takes_no_checkpoint(workplace: Path, tiny_folder: Path, call: Train) -> None:
    run = workplace / "run"
    settings = arguments(tiny_folder, {"lora_rank": 512})  # a checkpoint of several megabytes
    words = ["train", "--preset", "micro", "--output", str(run), *settings]
    done = in_new_process(workplace, *words, limit=1_000_000)
    outcome = Outcome(done.returncode, done.stdout, done.stderr, run)
    assert outcome.code == 1
    outcome.says(
        "cannot write into the run folder .*run: File too large; free some space and go on with: flash-grpo resume"
    )
    outcome.is_a_failed_run()
    again = call("resume", run)
    assert again.code == 0, again.err
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["status"] == "done"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB with a file that fills half of it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_takes_nothing_at_all(full_disk: Path, workplace: Path, tiny_folder: Path) -> None:
    run = full_disk / "run"
    words = ["train", "--preset", "micro", "--output", str(run), *arguments(tiny_folder, {})]
    done = in_new_process(workplace, *words, '--set=ignore_checks=["disk"]')
    outcome = Outcome(done.returncode, done.stdout, done.stderr, run)
    assert outcome.code == 1
    outcome.says(
        "cannot write into the run folder .*run: No space left on device; free some space and go on with: flash-grpo"
    )
    assert list(run.rglob(".*")) == []


def test_a_disk_that_would_run_full_is_told_before(full_disk: Path, train: Train) -> None:
    outcome = train(full_disk / "run")
    assert outcome.code == 2
    outcome.says("free")


@pytest.mark.parametrize("kind", ["spins", "computes"])
def test_a_reward_that_takes_for_ever(kind: str, workplace: Path, tiny_folder: Path) -> None:
    run = workplace / "run"
    settings = arguments(tiny_folder, {"rewards": {f"bad_rewards:{kind}": 1}, "reward_timeout": 0.5})
    done = in_new_process(workplace, "train", "--preset", "micro", "--output", str(run), *settings)
    outcome = Outcome(done.returncode, done.stdout, done.stderr, run)
    assert outcome.code == 1
    outcome.says(
        f"reward 'bad_rewards:{kind}' did not answer for 2 videos within 0.5 seconds; mend the reward, or raise"
    )
    outcome.is_a_failed_run()


# run folders of older versions ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = build_config("micro", {"model": str(tiny_folder), **SMALL, "rewards": {"colorfulness": 1}})
    trainer.train(config, folder, preset="micro")
    return folder


@pytest.fixture
def run(trained: Path, workplace: Path) -> Path:
    """A run that was trained for one update, to be damaged."""
    return Path(shutil.copytree(trained, workplace / "run"))


def change_config(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    change(values)
    (run / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def contents(run: Path) -> dict[Path, bytes]:
    passing = ("log.txt", "lock")
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name not in passing}


COMMANDS = (["evaluate"], ["export", "--checkpoint=latest"], ["resume", "--set=updates=2"])


def test_keys_that_a_run_s_version_did_not_have_take_their_defaults(run: Path, call: Train) -> None:
    change_config(run, lambda values: [values.pop(key) for key in ("reward_timeout", "ema_every", "videos_saved")])
    for command in COMMANDS:
        outcome = call(command[0], run, *command[1:])
        assert outcome.code == 0, (command, outcome.err)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("strange key", "config.yaml holds momentum, which this version of flash-grpo does not know; use the version"),
        ("strange value", r"optimizer: input should be 'adamw' or 'sgd', got 'lion'"),
        ("torn", "(cannot read the configuration|expected a mapping of configuration keys in) .*config.yaml"),
        ("gone", "is no run folder: it holds no config.yaml; "),
    ],
)
def test_configurations_of_runs_that_cannot_be_used(
    command: list[str], damage: str, sentence: str, run: Path, call: Train
) -> None:
    file = run / "config.yaml"
    if damage == "strange key":
        change_config(run, lambda values: values.update(momentum=0.9))
    elif damage == "strange value":
        change_config(run, lambda values: values.update(optimizer="lion"))
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:-100] + b"key: [")
    else:
        file.unlink()
    before = contents(run)
    outcome = call(command[0], run, *command[1:])
    assert outcome.code == 2
    outcome.says(sentence)
    assert contents(run) == before


@pytest.mark.parametrize("command", COMMANDS[:2], ids=lambda command: command[0])
def test_a_checkpoint_without_a_manifest(command: list[str], run: Path, call: Train) -> None:
    (run / "checkpoints" / "000001" / "manifest.json").unlink()
    before = contents(run)
    outcome = call(command[0], run, *command[1:])
    assert outcome.code == 2
    outcome.says("cannot read the checkpoint .*000001: .*manifest.json.*; use another checkpoint")
    assert contents(run) == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_events_of_an_older_version_are_read_as_far_as_they_go(command: list[str], run: Path, call: Train) -> None:
    file = run / "events.jsonl"
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for record in records:
        record.pop("v")
        record["something_else"] = 1
        for key in ("nfe", "cost", "drift", "seconds", "branch", "ci95", "best"):
            record.pop(key, None)
    lines = [json.dumps(record) for record in records]
    lines[1:1] = ["no json", '{"type": "metrics"}', "[]", json.dumps({**records[0], "type": "of_old"}), lines[2][:20]]
    file.write_text("\n".join(lines), encoding="utf-8")
    outcome = call(command[0], run, *command[1:])
    assert outcome.code == 0, outcome.err
    types = [record.type for record in read_events(run)]
    assert "of_old" in types and types.count("run_started") >= 1


def test_a_run_that_left_neither_events_nor_a_summary(run: Path, call: Train) -> None:
    (run / "events.jsonl").unlink()
    (run / "summary.json").unlink()
    outcome = call("evaluate", run)
    assert outcome.code == 2
    outcome.says("expected updates or evaluations in .*events.jsonl, found none; train first")
    for command in COMMANDS[1:]:
        outcome = call(command[0], run, *command[1:])
        assert outcome.code == 0, outcome.err
