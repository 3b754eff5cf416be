"""Claims become argument lists and environments; no shell, no secrets, no foreign folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.config import build_config, dump_config, parse_assignments
from flash_grpo.errors import InputError
from flash_grpo.ownership import Owner, take_ownership
from flash_grpo.prompts import load_prompts
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker import launch
from flash_grpo_studio.worker.launch import Ground, command_for, environment, flow_yaml, prepare_folder
from flash_grpo_studio.worker.living import find_leader
from flash_grpo_studio.worker.processes import birth

CONFIG = build_config("micro", {"updates": 6}).model_dump(mode="json")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    workspace = Workspace(tmp_path / "workspace")
    return Ground(workspace, workspace.prepare(), socket.gethostname(), slots=2)


def claim(kind: str = "alignment", devices: tuple[str, ...] = ("cpu:0",), **spec: Any) -> Claim:
    spec = spec or {"config": CONFIG, "files": {}}
    return Claim("0123456789abcdef", 3, 2, kind, "jobs/0123456789abcdef", spec, devices)


def arguments(ground: Ground, found: Claim) -> list[str]:
    command = command_for(ground, found)
    assert command[0] == sys.executable and all(isinstance(part, str) for part in command)
    return command[command.index("flash_grpo.cli") + 1 :]


def trained(ground: Ground, **changes: Any) -> Path:
    run = ground.workspace.run("0123456789abcdef")
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(dump_config(build_config("micro", {"updates": 6, **changes})))
    return run


def test_a_first_attempt_trains_and_a_later_one_resumes(ground: Ground) -> None:
    assert arguments(ground, claim()) == ["train", "--config", "config.yaml", "--output", "run"]
    trained(ground)
    assert arguments(ground, claim()) == ["resume", "run"], "control: nothing was edited, nothing is set"


def test_what_was_edited_meanwhile_is_set_when_a_run_is_resumed(ground: Ground) -> None:
    trained(ground, updates=4, learning_rate=1e-5)
    command = arguments(ground, claim())
    assert command[:2] == ["resume", "run"]
    given = parse_assignments([command[place + 1] for place, part in enumerate(command) if part == "--set"])
    assert given == {"updates": 6, "learning_rate": CONFIG["learning_rate"]}


@pytest.mark.parametrize("value", [1e-5, 3, True, None, "a: b, 'c'", [1e-7, "x"], {"r": {"low": 1e-6, "t": "ü"}}, []])
def test_values_survive_the_command_line(value: Any) -> None:
    text = flow_yaml(value)
    assert "\n" not in text and parse_assignments([f"key={text}"]) == {"key": value}


def test_several_devices_start_as_many_processes(ground: Ground) -> None:
    command = command_for(ground, claim(devices=("cuda:2", "cuda:5")))
    assert command[1:6] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    seen = environment(ground, claim(devices=("cuda:2", "cuda:5")))
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("2,5", "PCI_BUS_ID")


def test_a_run_sees_its_devices_and_no_secrets(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_GRPO_DATABASE_URL", "postgresql://u:hushhush@h/d")
    monkeypatch.setenv("FLASH_GRPO_BROKER_URL", "redis://:hushhush@h/0")
    monkeypatch.setenv("UNRELATED", "kept")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = environment(ground, claim())
    assert not any("hushhush" in value for value in seen.values()) and seen["UNRELATED"] == "kept"
    assert seen["CUDA_VISIBLE_DEVICES"] == "", "a CPU slot sees no GPU"
    assert (seen["FLASH_GRPO_JOB"], seen["FLASH_GRPO_ATTEMPT"]) == ("0123456789abcdef", "2")
    assert int(seen["OMP_NUM_THREADS"]) == max(1, (os.cpu_count() or 1) // 2) and seen["OMP_WAIT_POLICY"] == "PASSIVE"


def test_a_run_of_another_machine_is_taken_over_and_a_released_one_is_not(ground: Ground) -> None:
    run = trained(ground)
    lock = run / "lock"
    owner = Owner(1, "x", "far-away", 1, 1.0)
    lock.write_text(json.dumps(owner.__dict__))
    assert arguments(ground, claim()) == ["resume", "run", "--take-over"]
    lock.write_text(json.dumps(replace(owner, released=True).__dict__))
    assert arguments(ground, claim()) == ["resume", "run"]
    lock.write_text(json.dumps(replace(owner, host=socket.gethostname(), process=2**22 + 1).__dict__))
    assert arguments(ground, claim()) == ["resume", "run"], "a dead owner of this machine needs no force"


def test_a_run_that_somebody_goes_on_with_by_hand_is_adopted(ground: Ground) -> None:
    run = trained(ground)
    ownership = take_ownership(run)
    found = find_leader(ground, claim())
    assert found is not None and (found.pid, found.born) == (os.getpid(), birth(os.getpid()))
    ownership.release()
    assert find_leader(ground, claim()) is None


def test_the_folder_holds_what_the_command_reads(ground: Ground) -> None:
    files = {"prompts.jsonl": [{"prompt": "a cat"}, {"id": "second", "prompt": "ein „Hund“"}]}
    prepare_folder(ground, claim(config={**CONFIG, "prompts": "prompts.jsonl"}, files=files))
    folder = ground.workspace.job("0123456789abcdef")
    assert [prompt.text for prompt in load_prompts(str(folder / "prompts.jsonl"))] == ["a cat", "ein „Hund“"]
    assert "prompts: prompts.jsonl" in (folder / "config.yaml").read_text()


TASKS: dict[str, dict[str, Any]] = {
    "evaluation": {"run": "jobs/aa/run"},
    "preview": {"run": "jobs/aa/run", "prompts": ["--help", "x"], "seeds": [0, 7], "checkpoint": "best",
                "strength": 0.5, "side": "both"},
    "scoring": {"videos": [{"id": "v", "path": "uploads/-x.mp4", "prompt": "p"}], "rewards": ["flicker"],
                "reward_options": {"flicker": {"a": 1}}},
    "normalisation": {"path": "uploads/-in.mov", "fps": None, "max_side": 640, "prompt": None},
    "export": {"run": "jobs/aa/run", "format": "adapter", "checkpoint": "3", "name": "-x"},
    "composition": {"pairs": [{"left": "uploads/-x.mp4", "right": "uploads/y.mp4", "caption": "--help"}],
                    "labels": ["--help", ""], "layout": "wipe", "format": "webp", "fps": 8.0, "width": None},
    "contact_sheet": {"pairs": [{"left": "uploads/-x.mp4", "right": "uploads/y.mp4", "caption": "p",
                                 "scores": {"flicker": [0.1, 0.2]}}], "labels": ["-a", "b"]},
    "push": {"export": "jobs/aa/export", "repo": "owner/name", "private": True, "user": "aa"},
    "download": {"repo": "owner/name", "revision": "abc", "what": "model"},
}  # fmt: skip


@pytest.mark.parametrize("kind", TASKS)
def test_the_command_line_accepts_what_each_kind_asks(ground: Ground, kind: str) -> None:
    """Parsed by the real command line: unknown options or a missing argument end with exit code 2."""
    from typer.main import get_command

    from flash_grpo.cli import app

    found = claim(kind, (), task=TASKS[kind])
    prepare_folder(ground, found)
    command = arguments(ground, found)
    group: Any = get_command(app)
    subcommand = group.commands[command[0]]
    context = subcommand.make_context(command[0], command[1:])
    assert context.params["report"] == Path("report")
    with pytest.raises(Exception, match="(?i)no such option"):  # control: what it does not know is told
        subcommand.make_context(command[0], ["--no-such-option", *command[1:]])


def test_an_unknown_kind_is_refused_with_a_sentence(ground: Ground) -> None:
    with pytest.raises(InputError, match="does not know jobs of kind 'dance'"):
        command_for(ground, claim("dance", (), task={}))


def test_a_path_that_leaves_the_workspace_is_refused(ground: Ground) -> None:
    with pytest.raises(InputError, match="leaves the workspace"):
        command_for(ground, claim("evaluation", (), task={"run": "../../etc"}))


def test_long_output_is_moved_aside_while_the_process_goes_on(ground: Ground, tmp_path: Path) -> None:
    output = tmp_path / launch.OUTPUT_FILE
    with output.open("ab") as file:
        child = subprocess.Popen(
            [sys.executable, "-uc", "print('x' * 99, *range(20), sep='\\n'); input(); print('the end')"],
            stdin=subprocess.PIPE,
            stdout=file,
        )
    while b"19" not in output.read_bytes():
        pass
    launch.trim_output(tmp_path, limit=1000)
    assert b"19" in output.read_bytes(), "control: short enough"
    launch.trim_output(tmp_path, limit=100)
    assert output.read_bytes() == b"" and b"19" in (tmp_path / launch.OLD_OUTPUT_FILE).read_bytes()
    child.communicate(b"\n")
    assert output.read_bytes() == b"the end\n"
