"""The worker's own command with real trainings: kill -9 of either, and every kind of job after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from flash_grpo.events import read_events
from flash_grpo_studio.app.jobs.dispatch import Dispatch
from flash_grpo_studio.app.store.metrics import count_points
from flash_grpo_studio.app.store.tables import BaseModelEntry, File, Video, Worker, new_id
from flash_grpo_studio.worker import agent
from tests.hub_server import COMMIT, HubState, serving
from tests.studio import Parts
from tests.worker.rig import (
    ROOT,
    TINY,
    assert_nothing_left,
    attempts_of,
    processes,
    wait,
    wait_for,
    worker_process,
)


def worker_row(parts: Parts) -> Worker | None:
    with parts.store.reading() as session:
        return session.scalar(select(Worker).where(Worker.state == "active"))


def test_a_worker_starts_without_torch_and_stops_in_good_order(parts: Parts, broker_url: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with worker_process(parts, tmp_path / "log", None, "--broker-url", broker_url, "--slots", "2") as process:
        row = wait(lambda: worker_row(parts))
        print(f"registered after {time.monotonic() - began:.1f} s")
        assert [device["name"] for device in row.devices] == ["cpu:0", "cpu:1"] and row.facts["cores"] >= 1
        wait(lambda: Dispatch(broker_url).announce())
        libraries = {Path(part.path).name for part in psutil.Process(process.pid).memory_maps()}
        assert not any("torch" in name for name in libraries) and any("python" in name for name in libraries)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
    assert worker_row(parts) is None
    lines = (tmp_path / "log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line) for line in lines), lines
    assert "stopping" in lines[-2] and "worker stopped" in lines[-1]


def test_no_module_of_the_worker_imports_torch() -> None:
    names = sorted(path.stem for path in Path(agent.__file__).parent.glob("*.py") if path.stem != "__init__")
    imports = "; ".join(f"import flash_grpo_studio.worker.{name}" for name in names)
    code = f"import sys; {imports}; from celery.worker import state; print('torch' in sys.modules, len(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.startswith("False")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--database-url", "mysql://h/d"], "expected a database URL"),
        (["--broker-url", "amqp://h"], "expected a broker URL"),
        (["--devices", "cuda:99"], "no device 'cuda:99' here"),
        (["--hang-minutes", "0"], "expected --hang-minutes above 0"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "flash_grpo.cli", "worker", "--workspace", str(tmp_path), *options]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 2 and words in found.stderr and len(found.stderr.splitlines()) == 1


def test_killed_worker_and_killed_training_lose_little_and_nothing_is_done_twice(parts: Parts, tmp_path: Path) -> None:
    """kill -9 of the worker: the training lives on and is adopted. kill -9 of the training: it is resumed."""
    job = parts.submit(overrides={**TINY, "updates": 40, "evaluate_every": 20, "checkpoint_every": 5})
    with worker_process(parts, tmp_path / "log", None) as first:
        wait(lambda: parts.job(job.id).update >= 3, 120)
        [run] = processes(parts, job.id)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    at_kill = parts.job(job.id).update
    assert psutil.pid_exists(run)
    began = time.monotonic()
    with worker_process(parts, tmp_path / "log", None) as second:
        wait(lambda: parts.events(job.id, "adopted"))
        adopted = time.monotonic() - began
        wait(lambda: parts.job(job.id).update > at_kill, 60)
        assert processes(parts, job.id) == [run]
        wait(lambda: parts.job(job.id).update >= 22, 120)
        os.kill(run, signal.SIGKILL)
        wait(lambda: len(attempts_of(parts, job.id)) == 2, 60)
        died_at = max(record.update or 0 for record in _metrics(parts, job.id))
        done = wait_for(parts, job.id, "succeeded", seconds=180)
        second.terminate()
        assert second.wait(20) == 0
    lost, resumed = attempts_of(parts, job.id)
    assert lost.outcome == "lost" and resumed.outcome == "succeeded" and resumed.from_update is not None
    print(f"adopted {adopted:.1f} s after the second worker's start; updates lost: {died_at - resumed.from_update}")
    assert died_at - resumed.from_update < 5 + 1, "no more than since the newest checkpoint"
    assert done.update == 40
    with parts.store.reading() as session:
        assert count_points(session, job.id) == 40
    # The store holds what a reader of the log sees.
    assert [r.update for r in _metrics(parts, job.id)] == list(range(1, 41))
    assert_nothing_left(parts)


def _metrics(parts: Parts, job_id: str) -> list[object]:
    return [record for record in read_events(parts.workspace.run(job_id)) if record.type == "metrics"]


def test_every_kind_of_job_after_an_alignment(
    parts: Parts, broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.service.announce = Dispatch(broker_url).announce
    weights = "transformer/diffusion_pytorch_model.safetensors"
    hub = HubState({"model_index.json": b'{"_class_name": "WanPipeline"}', weights: b"x" * 5000}, {weights})
    with serving(hub) as endpoint, monkeypatch.context() as patch:
        patch.setenv("HF_ENDPOINT", endpoint)
        patch.setenv("HF_HOME", str(tmp_path / "home"))
        _every_kind(parts, broker_url, tmp_path)


def _every_kind(parts: Parts, broker_url: str, tmp_path: Path) -> None:
    with worker_process(parts, tmp_path / "log", None, "--broker-url", broker_url) as process:
        wait(lambda: worker_row(parts))
        job = parts.submit(overrides=TINY)
        aligned = wait_for(parts, job.id, "succeeded", seconds=180)
        assert aligned.result["status"] == "done" and "heldout" in aligned.result
        with parts.store.reading() as session:
            videos = session.query(Video).filter(Video.job_id == job.id).all()
            files = {file.kind: file for file in session.query(File).filter(File.job_id == job.id)}
        assert {"summary", "chart", "contact_sheet", "config", "log"} <= files.keys()
        assert all(video.prompt and video.scores for video in videos) and {v.side for v in videos} == {
            "before",
            "after",
        }

        upload = videos[0].path
        with parts.store.writing() as session:
            row = File(id=new_id(), owner_id=parts.ann.user_id, kind="upload", name="a.mp4", path=upload)
            session.add(row)
        asked = {
            "preview": {"job_id": job.id, "prompts": ["a red circle", "--help"], "seeds": [3], "checkpoint": "latest"},
            "scoring": {"video_ids": [videos[0].id], "rewards": ["flicker"]},
            "export": {"job_id": job.id, "checkpoint": "latest"},
            "evaluation": {"job_id": job.id},
            "normalisation": {"file_id": row.id, "prompt": "mine"},
            "download": {"repo": "someone/small"},
        }
        jobs = {kind: parts.submit(kind=kind, **values) for kind, values in asked.items()}
        done = {kind: wait_for(parts, found.id, "succeeded", "failed", seconds=180) for kind, found in jobs.items()}
        assert {kind: (found.state, found.message) for kind, found in done.items() if found.state != "succeeded"} == {}
        process.terminate()
        assert process.wait(20) == 0
    with parts.store.reading() as session:
        previews = session.query(Video).filter(Video.job_id == jobs["preview"].id).all()
        scored = session.get_one(Video, videos[0].id)
        normalised = session.query(Video).filter(Video.job_id == jobs["normalisation"].id).one()
        exported = session.query(File).filter(File.job_id == jobs["export"].id).all()
    assert {(v.side, v.prompt, v.seed) for v in previews} == {
        (side, prompt, 3) for side in ("before", "after") for prompt in ("a red circle", "--help")
    }
    assert all(parts.workspace.inside(video.path).stat().st_size == video.bytes for video in [*previews, normalised])
    assert set(scored.scores) == {*videos[0].scores, "flicker"} and normalised.prompt == "mine"
    with parts.store.reading() as session:
        model = session.query(BaseModelEntry).one()
    assert (model.name, model.path, model.revision) == ("someone/small", "models/someone--small", COMMIT)
    assert (parts.workspace.folder / model.path / "model_index.json").is_file()
    assert any(file.name.endswith(".safetensors") for file in exported)
    assert done["evaluation"].result["update"] == aligned.result["best_update"]
    assert str(parts.workspace.folder) not in str([found.result for found in done.values()]), "only relative paths"
    assert all(found.progress.get("updates") for found in done.values())
    assert_nothing_left(parts)
