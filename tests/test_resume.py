"""Runs that are killed, damaged, taken over or changed, and go on as if nothing had happened, or say why not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flash_grpo import cli
from flash_grpo import trainer as trainer_module
from flash_grpo.checkpoint import newest_resumable, saved_updates
from flash_grpo.config import load_config
from flash_grpo.control import Interrupted, ask
from flash_grpo.errors import InputError
from flash_grpo.events import Event, Metrics, read_events
from flash_grpo.trainer import resume, train
from tests.kill_driver import outcome
from tests.runs import BRIGHT, QUICK, at, of_type, run, summary_of
from tests.tiny import SMALL, config_for

VALUES: dict[str, Any] = {
    **QUICK,
    **SMALL,
    "rewards": {BRIGHT: 1.0},
    "updates": 4,
    "ema_decay": 0.9,
    "learning_rate_schedule": "cosine",
}


@pytest.fixture(scope="module")
def whole(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    output = tmp_path_factory.mktemp("whole") / "run"
    train(config_for(tiny_folder, **VALUES), output, preset="micro")
    return output


def kill_and_resume(tiny: Path, cases: Sequence[tuple[Path, list[tuple[str, int]]]]) -> list[dict[str, Any]]:
    values = {**config_for(tiny, **VALUES).model_dump(exclude_unset=True)}
    jobs = {"config": values, "cases": [{"folder": str(folder), "kills": kills} for folder, kills in cases]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kill_driver"],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_killed_run_resumes_bit_for_bit(tiny_folder: Path, tmp_path: Path, whole: Path) -> None:
    dice = random.Random(20)
    kills = [(point, dice.randint(1, most)) for point, most in MOST_PASSES.items()]
    dice.shuffle(kills)
    plans = [kills[start : start + 2] for start in range(0, len(kills), 2)]  # each run dies twice, if it gets so far
    cases = [(tmp_path / f"case{index}", plan) for index, plan in enumerate(plans)]
    results = kill_and_resume(tiny_folder, cases)
    wanted = outcome(whole)
    for (folder, plan), result in zip(cases, results, strict=True):
        assert result["statuses"][0] == -9 and result["statuses"][-1] == 0, (plan, result)
        assert outcome(folder) == wanted, f"killed at {plan}, the resumed run differs"
        assert all(0 <= lost <= 1 for lost in result["lost"]), (plan, result)  # checkpoint_every is 1


MOST_PASSES = {  # how often a point is passed before the run's last few calls of it
    "rollout": 16,
    "decode": 12,
    "scoring": 12,
    "replay": 4,
    "update": 3,
    "event": 20,
    "save": 10,
    "manifest": 4,
    "rename": 4,
    "pointers": 3,
    "prune": 3,
    "evaluation": 4,
    "scores": 4,
    "report": 1,
}


def stopped(tiny: Path, output: Path, after: int, **changes: Any) -> None:
    """A run that was stopped once `after` updates were done."""

    def stop(event: Event) -> None:
        if isinstance(event, Metrics) and event.update == after:
            ask(output, "stop")

    with pytest.raises(Interrupted):
        train(config_for(tiny, **{**VALUES, **changes}), output, preset="micro", subscribers=[stop])


def test_without_the_optimiser_state_the_resumed_run_differs(
    tiny_folder: Path, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "restore_optimizer", lambda *_: None)
    stopped(tiny_folder, tmp_path / "run", after=2)
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run")["told"] != outcome(whole)["told"]


def test_a_stopped_run_resumes_bit_for_bit(tiny_folder: Path, tmp_path: Path, whole: Path) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=2)
    assert summary_of(output)["status"] == "interrupted"
    summary = resume(output)
    assert (summary["status"], summary["preset"], summary["updates"]) == ("done", "micro", 4)
    assert outcome(output) == outcome(whole)
    assert [r.data["from_update"] for r in read_events(output) if r.type == "resumed"] == [2]


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "manifest torn"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tiny_folder: Path, tmp_path: Path, whole: Path, damage: str
) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=3, checkpoint_every=1)
    newest = output / "checkpoints" / "000003"
    file = newest / ("manifest.json" if damage == "manifest torn" else "trainer_state/optimizer.safetensors")
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "flipped":
        content[-3] ^= 4
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2])
    resume(output)
    (warning,) = [w for w in of_type(output, "warning") if w.data["code"] == "damaged_checkpoint"]
    assert "000003" in warning.data["message"] and warning.data["message"].endswith("going on from update 2")
    assert outcome(output) == outcome(whole)


def test_a_run_whose_checkpoints_are_all_damaged_starts_anew(tiny_folder: Path, tmp_path: Path, whole: Path) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=2)
    for folder in (output / "checkpoints").iterdir():
        (folder / "adapter.safetensors").write_bytes(b"")
    assert newest_resumable(output)[0] is None
    resume(output)
    warnings = [w.data["message"] for w in of_type(output, "warning") if w.data["code"] == "damaged_checkpoint"]
    assert len(warnings) == 2 and all(sentence.endswith("going on from the start") for sentence in warnings)
    assert outcome(output) == outcome(whole)


def test_a_damaged_best_checkpoint_costs_the_report_nothing_else(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"

    def damage() -> None:
        for folder in (output / "checkpoints").iterdir():
            (folder / "adapter.safetensors").write_bytes(b"broken")

    def when_last(event: Any) -> None:
        if event.type == "metrics" and event.update == 3:
            damage()

    summary = run(tiny_folder, output, when_last)
    assert summary["status"] == "done" and summary["best_update"] == 3


def test_what_would_change_the_meaning_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=1)
    before = load_config(output / "config.yaml")
    with pytest.raises(
        InputError, match=r"trains something else \(group_size: 4 -> 6; updates: 4 -> 9\); set group_size"
    ):
        resume(output, {"group_size": 6, "updates": 9})
    assert load_config(output / "config.yaml") == before
    with pytest.raises(InputError, match="set updates back"):  # under a cosine schedule it would bend the rates
        resume(output, {"updates": 9})


def test_what_leaves_the_meaning_alone_may_change_and_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=1, learning_rate_schedule="constant")
    summary = resume(output, {"updates": 3, "rollout_batch": 5, "keep_checkpoints": 1})
    assert summary["updates"] == 3
    (warning,) = [w for w in of_type(output, "warning") if w.data["code"] == "changed_config"]
    for told in ("updates: 4 -> 3", "rollout_batch: 96 -> 5", "keep_checkpoints: 2 -> 1"):
        assert told in warning.data["message"]
    assert load_config(output / "config.yaml").rollout_batch == 5


def test_a_run_that_is_done_asks_for_more_updates(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    run(tiny_folder, output, updates=2)
    with pytest.raises(InputError, match="is done; to train it further, give more updates: --set updates=4"):
        resume(output)
    assert resume(output, {"updates": 3})["updates"] == 3
    assert max(saved_updates(output)) == 3


def test_a_done_run_that_is_trained_further_and_killed_is_not_done_any_more(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    run(tiny_folder, output, updates=2)

    class Killed(BaseException):
        """Stands for a SIGKILL: nothing of the run's own can catch it and say how it ended."""

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        resume(output, {"updates": 4}, subscribers=[at(Metrics, die)])
    assert summary_of(output)["status"] == "interrupted"
    assert resume(output)["updates"] == 4
    assert summary_of(output)["status"] == "done"


def test_a_checkpoint_without_trainer_state_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    stopped(tiny_folder, output, after=1)
    manifest = output / "checkpoints" / "000001" / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["files"] = {name: entry for name, entry in content["files"].items() if "/" not in name}
    manifest.write_text(json.dumps(content), encoding="utf-8")
    restored, (sentence,) = newest_resumable(output)
    assert restored is None and "holds weights but no trainer state: an older version wrote it" in sentence


def test_no_run_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run folder: it holds no config.yaml"):
        resume(tmp_path)


def test_the_command_line_pauses_and_resumes(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    values = {**VALUES, "model": str(tiny_folder), "updates": 500, "learning_rate_schedule": "constant"}
    options = [f"--set={key}={json.dumps(value)}" for key, value in values.items()]

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["flash-grpo", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert isinstance(stop.value.code, int)
        return stop.value.code

    def pause() -> None:
        while not of_type(output, "metrics"):
            time.sleep(0.05)
        ask(output, "pause")

    asking = threading.Thread(target=pause)
    asking.start()
    assert command("train", "--preset", "micro", "--output", str(output), *options) == 75
    asking.join()
    assert capsys.readouterr().err.endswith(f"the run was paused; go on with: flash-grpo resume {output}\n")
    reached = summary_of(output)["updates"]
    assert command("resume", str(output), "--set", f"updates={reached + 1}") == 0
    assert summary_of(output)["updates"] == reached + 1
    assert command("resume", str(output), "--set", "group_size=5") == 2
    assert command("control", str(output), "puase") == 2
    assert command("control", str(output), "save") == 0 and (output / "control" / "save").exists()
