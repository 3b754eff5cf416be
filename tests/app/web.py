"""The web application in this process for tests, with several users, and something of everything that has an id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.api.limits import Limits
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.tables import (
    Attempt,
    Ballot,
    Checkpoint,
    Event,
    File,
    Job,
    PromptSet,
    RewardProfile,
    Role,
    User,
    Video,
)

ORIGIN = "http://127.0.0.1:7860"
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + b"\x00" * 200


@dataclass
class Web:
    """An application, and clients that speak to it."""

    app: FastAPI
    client: TestClient
    users: dict[str, User] = field(default_factory=dict)

    @property
    def studio(self) -> Studio:
        """The application's parts."""
        studio: Studio = self.app.state.studio
        return studio

    def call(self, method: str, path: str, **more: Any) -> Any:
        """A request to /api/v1."""
        return self.client.request(method, f"/api/v1{path}", **more)

    def get(self, path: str, **more: Any) -> Any:
        """GET."""
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        """POST of JSON."""
        return self.call("POST", path, json=body, **more)

    def user(self, name: str, role: Role = "creator") -> dict[str, str]:
        """A new user who needs a login; returns the headers of a token with all scopes of the role."""
        with self.studio.store.writing() as session:
            row = User(name=name, role=role, password_hash="not a hash, so no password fits")
            session.add(row)
        self.users[name] = row
        scopes = {"viewer": ["read"], "creator": ["read", "write"], "admin": ["read", "write", "admin"]}[role]
        return self.token(name, scopes)

    def token(self, name: str, scopes: list[str], expires: float | None = None) -> dict[str, str]:
        """Headers of a new token."""
        made = self.studio.accounts.issue(self.users[name], "token", "test", scopes, expires)
        return {"Authorization": f"Bearer {made.text}"}

    def submit(self, headers: dict[str, str] | None = None, **values: Any) -> str:
        """A queued micro alignment; returns its id."""
        answer = self.post("/jobs", {"preset": "micro", **values}, headers=headers)
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["id"]
        return found


@contextmanager
def open_web(database_url: str, folder: Path, limits: Limits | None = None, broker_url: str = "") -> Iterator[Web]:
    """The application of a fresh workspace, as a loopback studio."""
    app = create_app(Settings(folder / "workspace", database_url, broker_url), limits)
    with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client:
        yield Web(app, client)


def something_of_everything(web: Web, owner: User) -> dict[str, str]:
    """One thing of every kind that has an id, all of one owner; by the name of the path parameter."""
    workspace = web.studio.workspace
    with web.studio.store.writing() as session:
        job = Job(owner_id=owner.id, kind="alignment", name="thing", spec=_spec(), folder="", position=1.0, updates=8)
        session.add(job)
        session.flush()
        job.folder = workspace.relative(workspace.job(job.id))
        run = workspace.run(job.id)
        (run / "videos").mkdir(parents=True)
        (run / "videos" / "a.mp4").write_bytes(MP4)
        (run / "config.yaml").write_text("seed: 0\n", encoding="utf-8")
        video = Video(owner_id=owner.id, job_id=job.id, path=f"{job.folder}/run/videos/a.mp4", bytes=len(MP4), update=0)
        file = File(owner_id=owner.id, kind="upload", name="up.mp4", path="uploads/u/up.mp4", bytes=len(MP4))
        (workspace.folder / "uploads" / "u").mkdir(exist_ok=True)
        (workspace.folder / "uploads" / "u" / "up.mp4").write_bytes(MP4)
        prompts = PromptSet(owner_id=owner.id, name="set", prompts=[{"id": "a", "text": "a red circle"}])
        profile = RewardProfile(owner_id=owner.id, name="profile", rewards={"sharpness": 1.0})
        session.add_all([video, file, prompts, profile])
        session.add(Checkpoint(job_id=job.id, update=4, path="x"))
        session.flush()
        sides = {"first_side": f"{job.id}@0", "second_side": f"{job.id}@4", "key": "k", "prompt": "a ball", "seed": 0}
        shown = {"first_video_id": video.id, "second_video_id": video.id}
        ballot = Ballot(user_id=owner.id, first_is_before=True, first_on_left=True, **sides, **shown)
        session.add(ballot)
        session.add(Attempt(job_id=job.id, number=1, worker_id="w", host="here", devices=["cpu:0"]))
        session.add(Event(job_id=job.id, type="warning", data={"message": "careful", "code": "test"}))
    token = web.studio.accounts.issue(owner, "token", "thing", ["read"], None)
    devices = [{"name": "cpu:0", "kind": "cpu"}]
    return {
        "job_id": job.id,
        "video_id": video.id,
        "file_id": file.id,
        "ballot_id": ballot.id,
        "prompt_set_id": prompts.id,
        "profile_id": profile.id,
        "token_id": token.row.id,
        "user_id": owner.id,
        "worker_id": workers.register(web.studio.store, "here", 1, 1.0, "test", devices, {}),
    }


def _spec() -> dict[str, Any]:
    from flash_grpo.config import build_config

    return {"ask": {"preset": "micro", "overrides": {}}, "config": build_config("micro").model_dump(), "files": {}}
