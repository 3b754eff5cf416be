"""Requests from outside: files in RUN/control and signals, carried out, acknowledged and never left lying."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from flash_grpo.checkpoint import saved_updates
from flash_grpo.control import Interrupted, Requests, ask, listening
from flash_grpo.errors import InputError
from flash_grpo.events import Metrics, Progress, read_events
from flash_grpo.trainer import resume
from tests.runs import at, of_type, run, summary_of


def test_save_and_sample_are_done_and_acknowledged(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    asked = at(Metrics, lambda: [ask(output, name) for name in ("save", "sample")])
    run(tiny_folder, output, asked, checkpoint_every=100, evaluate_every=0)
    told = [r for r in read_events(output) if r.type in ("request", "checkpoint", "samples", "metrics")]
    order = [(r.type, r.data.get("request")) for r in told if r.update == 1]
    assert order == [
        ("metrics", None),
        ("checkpoint", None),
        ("request", "save"),
        ("samples", None),
        ("request", "sample"),
    ]
    assert 1 in saved_updates(output)
    samples = [r for r in of_type(output, "samples") if r.update == 1]
    assert samples and all((output / file).is_file() for file in samples[0].data["files"])
    assert not any((output / "control").iterdir())


def test_sampling_changes_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    plain, disturbed = tmp_path / "plain", tmp_path / "disturbed"
    run(tiny_folder, plain)
    run(tiny_folder, disturbed, at(Metrics, lambda: ask(disturbed, "sample")))
    figures = [
        [{**r.data, "seconds": 0, "peak_memory_mb": 0, "nfe": 0, "cost": 0} for r in of_type(output, "metrics")]
        for output in (plain, disturbed)
    ]
    assert figures[0] == figures[1]


def test_pause_saves_and_the_run_can_go_on(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pytest.raises(Interrupted) as stop:
        run(tiny_folder, output, at(Metrics, lambda: ask(output, "pause")), checkpoint_every=100, evaluate_every=0)
    assert stop.value.status == summary_of(output)["status"] == "paused"
    assert saved_updates(output) == [1]
    assert not any((output / "control").iterdir())  # else the resumed run would stop at once
    assert resume(output)["status"] == "done"


def test_a_request_to_a_run_that_ended_does_not_reach_the_next_attempt(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(tiny_folder, output, at(Metrics, lambda: ask(output, "stop")))
    ask(output, "stop")
    assert resume(output)["status"] == "done"


@pytest.mark.parametrize("phase", ["setup", "rollout", "evaluate"])
def test_a_signal_in_any_phase_leaves_a_resumable_run(tiny_folder: Path, tmp_path: Path, phase: str) -> None:
    output = tmp_path / "run"
    seen: list[str] = []

    def terminate(event: object) -> None:
        if isinstance(event, Progress) and event.phase == phase and (event.update or phase == "setup") and not seen:
            seen.append(phase)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run(tiny_folder, output, terminate, checkpoint_every=100, updates=4)
    reached = summary_of(output)["updates"]
    assert saved_updates(output) == ([reached] if reached else [])
    assert resume(output)["updates"] == 4


def test_a_signal_does_not_wait_for_a_slow_reward(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    timer = threading.Timer(0, lambda: None)

    def start(event: object) -> None:
        nonlocal timer
        if isinstance(event, Progress) and event.phase == "rollout":
            timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()

    with pytest.raises(Interrupted):
        run(tiny_folder, output, start, rewards={"tests.tiny:Slow": 1.0})
    timer.join()
    started, ended = of_type(output, "progress")[-1].time, read_events(output)[-1].time
    assert ended - started < 10  # the reward would have taken a minute


def test_a_second_signal_meets_the_systems_own_handler() -> None:
    requests = Requests(Path("nowhere"))
    before = signal.getsignal(signal.SIGTERM)
    with listening(requests):
        signal.raise_signal(signal.SIGTERM)
        assert requests.asked == "interrupted"
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == before


def test_unknown_requests_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown request 'puase'; did you mean 'pause'"):
        ask(tmp_path, "puase")
    with pytest.raises(InputError, match="is no run folder"):
        ask(tmp_path, "pause")


def test_a_signal_that_a_library_wraps_is_still_a_stop(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception as error:
            raise RuntimeError("failed to import") from error

    monkeypatch.setattr("flash_grpo.run.load_model", load)
    with pytest.raises(Interrupted):
        run(tiny_folder, tmp_path / "run")
    assert summary_of(tmp_path / "run")["status"] == "interrupted"
    assert read_events(tmp_path / "run")[-1].type == "finished"
