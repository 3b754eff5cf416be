"""Several processes: the same update as one, the same weights everywhere, one sentence when one of them fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_grpo import replay
from flash_grpo.config import RunConfig, build_config
from flash_grpo.distributed import Runtime, fingerprint
from flash_grpo.errors import InputError
from flash_grpo.events import Record, read_events
from tests import distributed_worker as worker
from tests.distributed_worker import Change, Ended, free_port, start
from tests.tiny import SMALL, config_for

PLAIN: dict[str, Any] = {
    "rewards": {"tests.tiny:brightness": 1.0, "colorfulness": 0.5},
    "prompts_per_update": 4,
    "group_size": 4,
    "sampling_steps": 4,
    "candidate_steps": [0, 1],
    "optimizer": "sgd",
    "learning_rate": 1.0,
    "weight_decay": 0.0,
    "max_grad_norm": 1e6,
    "lora_rank": 4,
    "validation_limit": 2,
    "heldout_limit": 2,
    "checks": False,
}
UPDATES = 2
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped gradients": {"max_grad_norm": 1e-4, "learning_rate": 100.0},
    "independent starts, many micro-batches": {"initial_noise": "independent", "replay_batch": 3},
    "KL and two inner updates": {"kl_weight": 0.1, "inner_updates": 2},
    "all weights, checkpointed": {"adapter": "full", "gradient_checkpointing": True},
    "AdamW": {"optimizer": "adamw", "learning_rate": 1e-3},
}
BROKEN = {
    "gradients not summed": "plain",
    "averaged instead of summed": "plain",
    "advantages per process": "plain",
    "clipped before summing": "clipped gradients",
    "own starts": "plain",
}


def config(folder: Path, **changes: Any) -> RunConfig:
    return config_for(folder, **{**PLAIN, **changes})


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """||one - other|| / ||other||."""
    return float((one - other).norm() / other.norm())


@pytest.fixture(scope="module")
def alone(tiny_folder: Path) -> dict[str, Change]:
    """What one process does, by case."""
    return {name: worker.updates(config(tiny_folder, **changes), UPDATES) for name, changes in CASES.items()}


@pytest.fixture(scope="module")
def pair(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Change, Change]]:
    """What two processes do, by case or by what was broken."""
    cases = {**{name: (name, "") for name in CASES}, **{broken: (case, broken) for broken, case in BROKEN.items()}}
    jobs = [(config(tiny_folder, **CASES[case]), UPDATES, broken) for case, broken in cases.values()]
    one, two = start(worker.several_updates, 2, tmp_path_factory.mktemp("pair"), jobs)
    assert (one.code, two.code) == (0, 0), one.err + two.err
    return dict(zip(cases, zip(one.result, two.result, strict=True), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_two_processes_change_the_weights_as_one_does(
    alone: dict[str, Change], pair: dict[str, tuple[Change, Change]], case: str
) -> None:
    one, other = pair[case][0], alone[case]
    print(f"{case}: ||d1 - d2|| / ||d1|| = {gap(one.vector, other.vector):.1e}")
    assert gap(one.vector, other.vector) < 1e-3
    assert float(other.vector.norm()) > 1e-3
    for mine, theirs in zip(one.metrics, other.metrics, strict=True):
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3, abs=1e-6)
        assert mine["kl"] == _about(theirs["kl"])
        assert mine["rewards"] == _about(theirs["rewards"])
        assert mine["cost"] == pytest.approx(theirs["cost"])
        assert mine["nfe"] == theirs["nfe"]


@pytest.mark.parametrize("case", CASES)
def test_weights_are_equal_bit_for_bit_after_every_update(pair: dict[str, tuple[Change, Change]], case: str) -> None:
    one, two = pair[case]
    assert one.fingerprints == two.fingerprints and len(set(one.fingerprints)) == UPDATES
    assert one.same == two.same == [True] * UPDATES


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_synchronisation_is_seen(
    alone: dict[str, Change], pair: dict[str, tuple[Change, Change]], broken: str
) -> None:
    """Negative controls: another change of the weights, or weights that differ between the processes."""
    one, two = pair[broken]
    difference = gap(one.vector, alone[BROKEN[broken]].vector)
    print(f"{broken}: ||d1 - d2|| / ||d1|| = {difference:.1e}, weights the same: {one.same}")
    if broken in ("gradients not summed", "own starts"):
        assert one.same == two.same == [False] * UPDATES
    if broken != "own starts":
        assert difference > 0.1


def test_an_update_does_not_depend_on_how_it_is_cut(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accumulation: one backward over everything, or many, rolled out together or in parts."""
    # A reward whose spread is well above the rounding of its values, which no cut can be better than.
    members = {"group_size": 5, "initial_noise": "independent", "rewards": {"colorfulness": 1.0}}
    members |= {"replay_batch": 64, "rollout_batch": 64}

    def update(**cut: int) -> torch.Tensor:
        return worker.updates(config(tiny_folder, **{**members, **cut}), 1).vector

    whole = update()
    for cut in (
        {"replay_batch": 1},
        {"replay_batch": 3},
        {"rollout_batch": 1},
        {"rollout_batch": 7, "replay_batch": 7},
    ):
        difference = gap(update(**cut), whole)
        print(f"{cut}: {difference:.1e}")
        assert difference < 1e-5
    # Negative control: a mean over micro-batches of unequal size, not over rollouts.
    monkeypatch.setattr(replay.Unit, "share", lambda unit, groups: 1 / (2 * groups))
    wrong = gap(update(replay_batch=3), whole)
    print(f"mean of means: {wrong:.1e}")
    assert wrong > 0.01


@pytest.fixture(scope="module")
def heard_by(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What three processes told each other."""
    ended = start(worker.primitives, 3, tmp_path_factory.mktemp("primitives"))
    assert [e.code for e in ended] == [0, 0, 0], [e.err for e in ended]
    return [e.result for e in ended]


def test_processes_agree_on_values(heard_by: list[dict[str, Any]]) -> None:
    for rank, heard in enumerate(heard_by):
        assert heard["broadcast"] == {"asked": ["stop"], "from": 0}
        assert heard["values"] == ["", "value", "valuevalue"]
        assert heard["on_main"] == ([0, 1, 2] if rank == 0 else [])
        assert heard["rows"] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        assert heard["waited"] > 0.4  # the main process came half a second late


def test_one_flipped_bit_is_seen_everywhere(heard_by: list[dict[str, Any]]) -> None:
    for heard in heard_by:
        assert (heard["equal"], heard["flipped"], heard["repaired"]) == (True, False, True)


def test_shares_cover_everything_once_in_order(heard_by: list[dict[str, Any]]) -> None:
    for number, count in enumerate((1, 2, 5)):
        shares = [heard["shares"][number] for heard in heard_by]
        assert [index for share in shares for index in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_gradients_add_up_however_many_backwards_they_took(heard_by: list[dict[str, Any]]) -> None:
    """The second and third process call backward three times, and use a parameter the first one does not."""
    for heard in heard_by:
        assert heard["gradients"] == {"all": pytest.approx([6.0] * 3), "one": pytest.approx([2.0] * 3), "none": None}


def test_a_fingerprint_changes_with_every_bit_place_and_shape() -> None:
    weights = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    prints = {fingerprint([weights])}
    for element in (0, 20):
        for bit in range(32):
            flipped = weights.clone()
            flipped.view(torch.int32).view(-1)[element] ^= 1 << bit if bit < 31 else -(2**31)
            prints.add(fingerprint([flipped]))
    swapped = weights.flatten()[[1, 0, *range(2, 21)]].view(7, 3)
    others = [[swapped], [weights.view(3, 7)], [weights.double()], [weights[:4], weights[4:]], [weights, weights]]
    assert len(prints | {fingerprint(other) for other in others}) == 1 + 64 + len(others)
    assert fingerprint([weights.t().contiguous().t()]) == fingerprint([weights])


def test_alone_nothing_is_sent() -> None:
    with Runtime(build_config("micro"), Path()) as runtime:
        assert (runtime.rank, runtime.world, runtime.is_main) == (0, 1, True)
        value = {"a": [1]}
        assert runtime.broadcast(value) is value and runtime.gather_values(value, to_main=True)[0] is value
        assert runtime.same_everywhere([torch.zeros(2)])
        assert list(runtime.own_groups(3)) == [0, 1, 2]
        runtime.barrier()
        runtime.check_peers()


def test_starts_that_would_not_train_as_asked_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = build_config("micro")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(InputError, match="starts one process.*torchrun"):
        Runtime(settings, Path())
    monkeypatch.delenv("MASTER_ADDR")
    Runtime(settings, Path()).close()
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(InputError, match="DeepSpeed is not supported"):
        Runtime(settings, Path())


SIZES = [(1, 1), (5, 4)]


def test_evaluation_shared_out_finds_the_same_scores(tiny_folder: Path, tmp_path: Path) -> None:
    """With a prompt fewer than processes, and with shares of unequal size."""
    ended = start(worker.evaluations, 2, tmp_path, tiny_folder, SIZES)
    assert [e.code for e in ended] == [0, 0], [e.err for e in ended]
    for index, whole in enumerate(worker.evaluations(tiny_folder, SIZES)):
        prompts, keep = SIZES[index]
        main, other = (e.result[index] for e in ended)
        for name, scores in whole["scores"].items():
            assert len(scores) == prompts
            assert torch.equal(main["scores"][name], other["scores"][name])
            print(f"{name}: {float((main['scores'][name] - scores).abs().max()):.1e}")
            assert torch.allclose(main["scores"][name], scores, rtol=1e-5, atol=1e-6)
        assert len(set(whole["scores"]["tests.tiny:brightness"].tolist())) == prompts  # out of order would be seen
        assert main["nfe"] == other["nfe"] == whole["nfe"]
        assert other["videos"] == [] and len(main["videos"]) == keep
        for mine, theirs in zip(main["videos"], whole["videos"], strict=True):
            assert int(abs(mine.astype(int) - theirs.astype(int)).max()) <= 1


# whole runs --------------------------------------------------------------------------------------------------------

SHORT: dict[str, Any] = {
    **SMALL,
    "rewards": "{'tests.tiny:brightness': 1}",
    "prompts_per_update": 6,
    "group_size": 4,
    "sampling_steps": 3,
    "candidate_steps": [0],
    "evaluation_steps": 2,
    "updates": 2,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "validation_limit": 2,
    "heldout_limit": 3,
    "videos_saved": 2,
}


def arguments(model: Path, output: Path) -> list[str]:
    settings = {**SHORT, "model": model}
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return ["train", "--preset", "micro", "--output", str(output), *pairs]


def fail(model: Path, folder: Path, fault: str, world: int) -> tuple[Path, list[Ended]]:
    """A run with a fault in one process; all must end within 30 seconds of it."""
    output, noted = folder / "run", folder / "time"
    ended = start(worker.command_with_fault, world, folder, fault, noted, *arguments(model, output))
    seconds = time.time() - float(noted.read_text())
    print(f"{fault}: all ended after {seconds:.1f} s")
    assert seconds < 30
    return output, ended


def complaints(ended: list[Ended]) -> list[str]:
    """All lines on standard error, over all processes."""
    return [line for process in ended for line in process.err.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("fault", "world", "code", "sentence"),
    [
        ("diverges", 3, 1, r"the run failed: process 2 of 3: the weights have diverged; details are in .*log.txt"),
        ("refuses", 2, 2, r"reward .* are not finite; make the reward answer a finite number .*"),
        ("stopped", 2, 130, r"the run was interrupted.*"),
        ("stopped_main", 2, 130, r"the run was interrupted.*"),
        ("drifts", 2, 2, r"the processes hold different weights after update 1; .*"),
    ],
)
def test_a_fault_in_one_process_ends_all_with_one_sentence(
    tiny_folder: Path, tmp_path: Path, fault: str, world: int, code: int, sentence: str
) -> None:
    output, ended = fail(tiny_folder, tmp_path, fault, world)
    (line,) = complaints(ended)
    assert re.fullmatch(f"flash-grpo: {sentence}", line)
    assert [process.code for process in ended] == [code] * world
    last = read_events(output)[-1]
    assert (last.type, last.data.get("status")) == (("finished", "interrupted") if code == 130 else ("failed", None))
    if fault == "diverges":  # the main process's log holds the other one's traceback
        assert "in diverges" in (output / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others(tiny_folder: Path, tmp_path: Path, victim: int) -> None:
    output, ended = fail(tiny_folder, tmp_path, f"kills_{victim}", 2)
    assert (ended[victim].code, ended[1 - victim].code) == (-signal.SIGKILL, 1)
    if victim == 0:
        assert complaints(ended) == []  # the shell or the launcher tells of the main process's death
    else:
        (line,) = complaints(ended)
        assert re.fullmatch(r"flash-grpo: the run failed: process 0 of 2 lost contact with another one: .*", line)
        assert read_events(output)[-1].type == "failed"


@pytest.fixture(scope="module")
def single(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run by one process."""
    folder = tmp_path_factory.mktemp("single")
    (ended,) = start(worker.command, 1, folder / "terminal", *arguments(tiny_folder, folder / "run"))
    assert ended.code == 0, ended.err
    return folder / "run"


def told(folder: Path) -> list[Record]:
    """A run's events but for its progress."""
    return [record for record in read_events(folder) if record.type != "progress"]


def assert_same_figures(mine: list[Record], theirs: list[Record]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        for key in ("rewards", "advantage", "branch", "groups", "nfe", "cost", "grad_norm", "best", "videos"):
            assert one.data.get(key) == _about(other.data.get(key)), (one.type, one.update, key)


def test_a_run_under_accelerate_launch_is_the_run_of_one_process(
    tiny_folder: Path, tmp_path: Path, single: Path
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
    launch += ["--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={free_port()}", "-m"]
    command = [sys.executable, *launch, "flash_grpo.cli", *arguments(tiny_folder, tmp_path / "pair")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Held-out prompts") == 1
    assert [record.type for record in told(tmp_path / "pair")] == [record.type for record in told(single)]
    assert_same_figures(told(tmp_path / "pair"), told(single))
    assert _files(tmp_path / "pair") - {"log-1.txt"} == _files(single)


def test_a_stopped_run_is_resumed_by_more_processes(tiny_folder: Path, tmp_path: Path, single: Path) -> None:
    output, _ = fail(tiny_folder, tmp_path, "stopped", 2)
    ended = start(worker.command, 3, tmp_path / "again", "resume", str(output))
    assert [process.code for process in ended] == [0, 0, 0], complaints(ended)
    assert [process.out.count("Held-out prompts") for process in ended] == [1, 0, 0]
    kinds = ("metrics", "evaluation")
    again, alone = ([r for r in told(folder) if r.type in kinds] for folder in (output, single))
    assert_same_figures(again, alone)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _about(value: Any) -> Any:
    """The value with every number in it approximate."""
    if isinstance(value, dict):
        return {key: _about(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_about(part) for part in value]
    return pytest.approx(value, rel=1e-3, abs=1e-6) if isinstance(value, int | float) else value
