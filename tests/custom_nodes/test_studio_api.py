"""The pack's client against the studio's own API, so that the two cannot drift apart."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from custom_nodes.comfyui_flash_grpo.logic.studio import NotThere, Studio
from custom_nodes.comfyui_flash_grpo.logic.studio_jobs import launch, look
from custom_nodes.comfyui_flash_grpo.logic.studio_settings import Access
from flash_grpo.models.folder import file_hash
from flash_grpo_studio.app.store.tables import Job
from flash_grpo_studio.comfyui.pocket import aligned_adapters
from tests.app.web import Web, open_web
from tests.databases import free_port


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("studio")
    with open_web(f"sqlite:///{folder / 'studio.db'}", folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def studio(web: Web) -> Iterator[Studio]:
    """A client with a token of one user, and the API at a real port."""
    token = web.user("ann")["Authorization"].removeprefix("Bearer ")
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(web.app, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    yield Studio(Access(f"http://127.0.0.1:{port}", token, "studio.json"))
    server.should_exit = True
    thread.join(10)


def exported(web: Web, format_: str) -> str:
    """A job of the kind export that has written a shipped adapter; returns its id."""
    with web.studio.store.writing() as session:
        owner = web.users["ann"].id
        job = Job(owner_id=owner, kind="export", name="e", state="succeeded", spec={}, folder="", position=1.0)
        session.add(job)
        session.flush()
        job.folder = web.studio.workspace.relative(web.studio.workspace.job(job.id))
        found = job.id
    folder = web.studio.workspace.job(found) / "export"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# card", encoding="utf-8")
    source = aligned_adapters()[-1]
    (folder / source.name).write_bytes(source.read_bytes())
    facts = {"run": "pocket-subject-size", "update": "80", "format": format_}
    files = {path.name: {"size": path.stat().st_size, "sha256": file_hash(path)} for path in sorted(folder.iterdir())}
    record = {"metadata": {f"flash_grpo.{key}": value for key, value in facts.items()}, "files": files}
    (folder / "export.json").write_text(json.dumps(record), encoding="utf-8")
    return found


def test_exports_are_listed_and_fetched(web: Web, studio: Studio, tmp_path: Path) -> None:
    job, other, gone = exported(web, "adapter"), exported(web, "merged"), exported(web, "adapter")
    (web.studio.workspace.job(gone) / "export" / "export.json").unlink()
    (found,) = studio.exports()
    assert found.name == f"studio: pocket-subject-size, update 80 [{job}]"
    assert studio.fetch_adapter(job, tmp_path).read_bytes() == aligned_adapters()[-1].read_bytes()
    with pytest.raises(Problem, match="is no adapter; export the run as adapter there"):
        studio.fetch_adapter(other, tmp_path)
    with pytest.raises(NotThere, match="no longer there"):
        studio.fetch_adapter(gone, tmp_path)


def test_a_job_is_launched_once_and_looked_at(studio: Studio) -> None:
    first = launch(studio, "micro", "from a graph", "a red circle\na blue square", "updates = 4", 1)
    again = launch(studio, "micro", "from a graph", "a red circle\na blue square", "updates = 4", 1)
    assert (first.id, first.state, first.total) == (again.id, "queued", 4) and first.text.startswith(
        "from a graph: queued"
    )
    assert launch(studio, "micro", "from a graph", "", "updates = 4", 2).id != first.id
    assert look(studio, f" {first.id} ").id == first.id


def test_what_it_refuses_is_one_sentence(studio: Studio) -> None:
    with pytest.raises(Problem, match="the studio says: unknown preset 'pokcet'; did you mean 'pocket'"):
        launch(studio, "pokcet", "", "", "", 1)
    with pytest.raises(NotThere, match="the studio says: no job"):
        look(studio, "0" * 16)
    stranger = Studio(Access(studio.access.url, "wrong", "studio.json"))
    with pytest.raises(Problem, match="does not know this token"):
        stranger.exports()
