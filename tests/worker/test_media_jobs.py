"""The worker's own command with jobs that train nothing: compositions, contact sheets, and exports sent to a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flash_grpo.errors import InputError
from flash_grpo.export_files import write_record
from flash_grpo.video import read_mp4, write_mp4
from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.store.pairs import key_of
from flash_grpo_studio.app.store.tables import File, Job, Video
from flash_grpo_studio.worker.launch import environment
from tests.hub_upload import HubState, serving
from tests.studio import Parts
from tests.worker.rig import assert_nothing_left, scripted, setting, wait_for, worker_process

TOKEN, OPERATORS = "hf_the_users_own_token_123", "hf_the_operators_token_456"
PROMPT = "--help <b>of</b> a red circle"


def alignment(parts: Parts) -> tuple[Job, dict[str, Video]]:
    """A run, held back, with a video before and after of one prompt and seed."""
    job = parts.submit()
    parts.service.pause(parts.ann, job.id)
    rows = {}
    for side, update, level in (("before", 0, 60), ("after", 4, 200)):
        path = f"{job.folder}/run/videos/{update:06d}/-a-0.mp4"
        write_mp4(parts.workspace.inside(path), np.full((5, 32, 32, 3), level, np.uint8), 8)
        facts: dict[str, Any] = {"prompt": PROMPT, "prompt_id": "a", "seed": 0, "noise": 7, "scores": {"flicker": 0.5}}
        rows[side] = Video(owner_id=parts.ann.user_id, job_id=job.id, path=path, update=update, side=side, **facts)
    with parts.store.writing() as session:
        session.add_all(rows.values())
    return job, rows


def export(parts: Parts) -> Job:
    """An export job that is done."""
    with parts.store.writing() as session:
        row = Job(
            owner_id=parts.ann.user_id, kind="export", name="e", state="succeeded", spec={}, folder="", position=9.0
        )
        session.add(row)
        session.flush()
        row.folder = parts.workspace.relative(parts.workspace.job(row.id))
    folder = parts.workspace.job(row.id) / "export"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    (folder / "a.safetensors").write_bytes(b"weights")
    write_record(folder, {})
    return row


def test_videos_are_composed_and_pairs_become_a_sheet(parts: Parts, tmp_path: Path) -> None:
    run, videos = alignment(parts)
    sides = {"before": f"{run.id}@0", "after": f"{run.id}@4"}
    two = {"left": videos["before"].id, "right": videos["after"].id}
    jobs = {
        "mp4": parts.submit(kind="composition", **two, labels=["--base", "ältere <b>"]),
        "webp": parts.submit(kind="composition", **two, layout="wipe", format="webp", fps=4),
        "sheet": parts.submit(kind="contact_sheet", **sides, keys=[key_of(PROMPT, 0)]),
        "broken": parts.submit(kind="composition", left=videos["after"].id, right=videos["after"].id),
    }
    with worker_process(parts, tmp_path / "log", None):
        done = {name: wait_for(parts, jobs[name].id, "succeeded", seconds=120) for name in ("mp4", "webp", "sheet")}
        wait_for(parts, jobs["broken"].id, "succeeded", seconds=60)
        parts.workspace.inside(videos["after"].path).write_bytes(b"damaged")
        again = parts.service.clone(parts.ann, jobs["broken"].id, {})[0]
        failed = wait_for(parts, again.id, "failed", seconds=60)
    assert "as a video" in failed.message and str(parts.workspace.folder) not in failed.message
    with parts.store.reading() as session:
        files = {
            file.job_id: file for file in session.query(File).filter(File.kind.in_(["composition", "contact_sheet"]))
        }
    kinds = {name: (files[job.id].kind, files[job.id].name) for name, job in jobs.items()}
    assert kinds["mp4"] == ("composition", "composition.mp4") and kinds["webp"] == ("composition", "composition.webp")
    assert kinds["sheet"] == ("contact_sheet", "contact_sheet.png")
    paths = {name: parts.workspace.inside(files[job.id].path) for name, job in jobs.items()}
    assert all(files[job.id].bytes == paths[name].stat().st_size for name, job in jobs.items())
    middle = read_mp4(paths["mp4"])[2][150]
    levels = [level for level in (60, 200) if (np.abs(middle.astype(int).mean(axis=1) - level) < 6).sum() > 200]
    assert levels == [60, 200] and middle[20:200].mean() < middle[300:500].mean(), "before is left, after is right"
    assert (done["mp4"].result["layout"], done["webp"].result["fps"]) == ("side_by_side", 4.0)
    with Image.open(paths["webp"]) as image:
        assert image.format == "WEBP"
    assert done["sheet"].result["pairs"] == 1 and parts.job(jobs["mp4"].id).devices == 0
    assert_nothing_left(parts)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"keys": ["nothing-0"]}, "have no pair 'nothing-0'"),
        ({"before": "JOB@x"}, "expected a side such as"),
        ({"keys": []}, "keys"),
        ({"keys": ["k"] * 65}, "keys"),
        ({"labels": ["one"]}, "labels"),
    ],
)
def test_a_sheet_of_what_is_not_there_is_refused(parts: Parts, change: dict[str, Any], sentence: str) -> None:
    run, _ = alignment(parts)
    asked = {"before": f"{run.id}@0", "after": f"{run.id}@4", "keys": [key_of(PROMPT, 0)], **change}
    with pytest.raises(ValueError, match=sentence):
        parts.submit(kind="contact_sheet", **asked)


def test_nothing_is_composed_of_what_others_own(parts: Parts) -> None:
    run, videos = alignment(parts)
    bob = parts.user("bob")
    with pytest.raises(Exception, match="no video"):
        parts.submit(bob, kind="composition", left=videos["before"].id, right=videos["after"].id)
    with pytest.raises(Exception, match="no job"):
        sides = {"before": f"{run.id}@0", "after": f"{run.id}@4"}
        parts.submit(bob, kind="contact_sheet", **sides, keys=[key_of(PROMPT, 0)])


def written(parts: Parts, *more: Path) -> dict[str, bytes]:
    """All files of the workspace but the secrets, its database, and more."""
    root = parts.workspace.folder
    files = [path for path in root.rglob("*") if path.is_file() and "secrets" not in path.relative_to(root).parts]
    return {str(path): path.read_bytes() for path in [*files, *root.parent.glob("studio.db*"), *more]}


def test_an_export_is_sent_with_its_owner_s_token_which_is_written_nowhere(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(parts)
    hub_tokens.keep(parts.workspace, parts.ann.user_id, TOKEN)
    hub = HubState(writers={TOKEN: "ann"}, readers={OPERATORS: "operator"})
    with serving(hub) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_TOKEN", OPERATORS)  # of the worker itself; no export is sent with it
        with worker_process(parts, tmp_path / "log", None):
            good = parts.submit(kind="push", job_id=made.id, repo="ann/aligned", private=False)
            done = wait_for(parts, good.id, "succeeded", "failed", seconds=120)
            assert done.state == "succeeded", done.message
            bad = parts.submit(kind="push", job_id=made.id, repo="bob/his")
            refused = wait_for(parts, bad.id, "failed", seconds=120)
    assert hub.repos["ann/aligned"].files.keys() == {"README.md", "a.safetensors", "export.json", "SHA256SUMS"}
    assert done.result["url"] == f"{endpoint}/ann/aligned" and done.result["private"] is False
    assert "the token may not write to bob" in refused.message and "bob/his" not in hub.repos
    tokens = {headers["authorization"] for _, _, headers in hub.requests if "authorization" in headers}
    assert tokens == {f"Bearer {TOKEN}"}, "and never that of the worker itself"
    secret = [name for name, content in written(parts, tmp_path / "log").items() if TOKEN.encode() in content]
    assert secret == [], "the token was written somewhere"
    told = json.dumps([done.result, done.spec, refused.message, refused.spec])
    assert TOKEN not in told and str(parts.workspace.folder) not in told
    assert_nothing_left(parts)


def test_only_a_job_that_sends_sees_a_token(parts: Parts) -> None:
    made = export(parts)
    hub_tokens.keep(parts.workspace, parts.ann.user_id, TOKEN)
    ground = setting(parts, scripted()).ground
    parts.submit(kind="push", job_id=made.id, repo="ann/aligned")
    sending = parts.claim(parts.worker())
    assert environment(ground, sending)["HF_TOKEN"] == TOKEN
    parts.submit()
    assert TOKEN not in environment(ground, parts.claim(parts.worker())).values()
    hub_tokens.forget(parts.workspace, parts.ann.user_id)
    with pytest.raises(InputError, match="no hub token any more; set one in Settings"):
        environment(ground, sending)
