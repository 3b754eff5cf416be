"""What a job that is done writes into the store, and whose rows it leaves alone."""

from __future__ import annotations

import json
import socket

import pytest
from sqlalchemy import true

from flash_grpo_studio.app.store.pairs import Pairs
from flash_grpo_studio.app.store.sides import Side
from flash_grpo_studio.app.store.tables import Checkpoint, Role, User, Video
from flash_grpo_studio.worker import outputs
from flash_grpo_studio.worker.launch import Ground
from tests.studio import Parts


@pytest.mark.parametrize(("role", "written"), [("creator", False), ("admin", True)])
def test_scores_of_a_video_that_is_shared_for_looking_are_its_owners(parts: Parts, role: Role, written: bool) -> None:
    job = parts.submit(shared=True)
    bob = parts.user("bob", role)
    ids = {"ann": "a" * 16, "bob": "b" * 16}
    with parts.store.writing() as session:
        for user in session.query(User).all():
            path = f"{job.folder}/{user.name}.mp4"
            session.add(Video(id=ids[user.name], owner_id=user.id, job_id=job.id, path=path, scores={"flicker": 0.5}))
    parts.service.pause(parts.ann, job.id)
    parts.submit(bob, kind="scoring", video_ids=list(ids.values()), rewards=["flicker"])
    found = parts.claim(parts.worker())
    folder = parts.workspace.report(found.job_id)
    folder.mkdir(parents=True)
    videos = [
        {"path": str(parts.workspace.inside(video["path"])), "scores": {"flicker": 0.25, "sharpness": 1.5}}
        for video in found.spec["task"]["videos"]
    ]
    (folder / "result.json").write_text(json.dumps({"videos": videos}), encoding="utf-8")
    result = outputs.enter(parts.store, Ground(parts.workspace, "studio", socket.gethostname()), found, True)
    assert result and len(result["videos"]) == 2, "the job itself tells all"
    with parts.store.reading() as session:
        scores = {name: session.get_one(Video, id_).scores for name, id_ in ids.items()}
    measured = {"flicker": 0.5}  # what the run itself measured stays: the file is not the frames it was made of
    added = {**measured, "sharpness": 1.5}
    assert scores == {"ann": added if written else measured, "bob": added}


def test_a_previews_videos_tell_strength_and_noise(parts: Parts) -> None:
    run = parts.submit()
    with parts.store.writing() as session:
        session.add(Checkpoint(job_id=run.id, update=4, path="x"))
    parts.service.pause(parts.ann, run.id)
    parts.submit(kind="preview", job_id=run.id, prompts=["a ball"], strength=0.5)
    found = parts.claim(parts.worker())
    common = {"prompt": "a ball", "id": "prompt-000", "seed": 0, "noise": 2**62}
    videos = [
        {**common, "path": "before/a.mp4", "side": "before", "checkpoint": None, "strength": 0.0},
        {**common, "path": "after/a.mp4", "side": "after", "checkpoint": 4, "strength": 0.5},
    ]
    folder = parts.workspace.report(found.job_id)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"videos": videos, "steps": 20}), encoding="utf-8")
    outputs.enter(parts.store, Ground(parts.workspace, "studio", socket.gethostname()), found, True)
    before, after = Side(run.id, 0), Side(run.id, 4, 0.5)
    with parts.store.reading() as session:
        [pair] = Pairs().read(session, before, after, true()).pairs
    assert (pair.before.noise, pair.after.noise, pair.after.job_id) == (2**62, 2**62, found.job_id)
    assert not pair.differences
