"""The studio in a real browser: one studio per module, one page per test, and no error or foreign request unnoticed.

A module that needs more than the web app says so: `STUDIO = "whole"` starts `flash-grpo studio` with broker, worker and
web app as processes, `STUDIO = "no worker"` the same without a worker. Otherwise the web app runs in a thread.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import delete

from flash_grpo.config import build_config
from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.api.serve import Server
from flash_grpo_studio.app.pages.addresses import WEB
from flash_grpo_studio.app.pages.mount import mount_pages
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Checkpoint, Draft, Job, Video
from flash_grpo_studio.app.workspace import Workspace
from tests import chaos
from tests.databases import free_port, missing

CHROMIUM = os.environ.get("FLASH_GRPO_CHROMIUM", "/usr/bin/chromium")
DESKTOP, PHONE = (1280, 800), (360, 740)
START_SECONDS = 60.0
SMALL_TARGETS = (
    "[...document.querySelectorAll('.fg-page :is(button, select, .fg-tabs a, summary, input[type=search])')]"
    ".filter(e => e.offsetParent && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 100))"
)
LANGUAGE_STORE, THEME_STORE = "flash-grpo-language", "flash-grpo-theme"


@dataclass
class Served:
    """A running web app."""

    port: int
    workspace: Workspace
    processes: chaos.Studio | None = None  # None: it runs in a thread of the tests

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.port}"

    def store(self) -> Store:
        """Its database, looked at beside it."""
        return Store(f"sqlite:///{self.workspace.folder}/studio.db")

    def call(self, method: str, path: str, **more: Any) -> Any:
        """A request to /api/v1; what it answers, which must be no error."""
        answer = httpx.request(method, f"{self.url}/api/v1{path}", timeout=30, trust_env=False, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, **values: Any) -> str:
        """A queued micro alignment; returns its id."""
        return str(self.call("POST", "/jobs", json={"preset": "micro", **values})["id"])

    def enter(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Jobs as rows of the table, in whatever state, oldest first; returns their ids."""
        owner = self.call("GET", "/me")["id"]
        now, store = time.time(), self.store()
        plain = {"owner_id": owner, "kind": "alignment", "preset": "micro", "spec": {"ask": {}}, "folder": "jobs/none"}
        with store.writing() as session:
            jobs = [
                Job(**{**plain, "position": float(place), "created": now - len(rows) + place, "updates": 8, **row})
                for place, row in enumerate(rows)
            ]
            session.add_all(jobs)
            session.flush()
            found = [job.id for job in jobs]
        store.close()
        return found

    def enter_with_videos(self, row: dict[str, Any], prompts: Sequence[str]) -> str:
        """A pocket run with a checkpoint, and the shipped example's videos and scores as its own, a pair for each
        prompt; returns its id.
        """
        spec = {"ask": {}, "config": build_config("pocket").model_dump()}
        job = self.enter([{"spec": spec, "preset": "pocket", **row}])[0]
        folder = self.workspace.job(job) / "run" / "videos"
        folder.mkdir(parents=True)
        owner, store = self.call("GET", "/me")["id"], self.store()
        pairs = json.loads((WEB / "example" / "example.json").read_text(encoding="utf-8"))["pairs"]
        with store.writing() as session:
            session.add(Checkpoint(job_id=job, update=row["update"], path="x", best=True))
            for place, prompt in enumerate(prompts):
                for column, (update, side) in enumerate(((0, "before"), (row["update"], "after"))):
                    file = folder / f"{place}-{side}.mp4"
                    shutil.copyfile(WEB / "example" / f"{place:02d}-{side}.mp4", file)
                    scores = {name: values[column] for name, values in pairs[place]["scores"].items()}
                    facts = {"prompt_id": f"p{place}", "prompt": prompt, "seed": 0, "noise": place, "scores": scores}
                    where = {"path": self.workspace.relative(file), "bytes": file.stat().st_size}
                    session.add(Video(owner_id=owner, job_id=job, update=update, side=side, **facts, **where))
        store.close()
        return job

    def forget_drafts(self) -> None:
        """What a test before has begun on the page of a new run is not taken up by the next."""
        store = self.store()
        with store.writing() as session:
            session.execute(delete(Draft))
        store.close()

    def clear(self) -> None:
        """No job any more."""
        store = self.store()
        with store.writing() as session:
            session.execute(delete(Job))
        store.close()

    def wait_for_pages(self) -> None:
        """Wait until Gradio is loaded."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(self.url, headers={"Accept": "text/html"}, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the pages were not there after a minute"
            time.sleep(0.1)


class ServedInThread(Served):
    """The web app alone, in a thread: seconds faster than a process, which imports everything anew."""

    def __init__(self, folder: Path) -> None:
        super().__init__(free_port(), Workspace(folder))
        self.start()

    def start(self) -> None:
        """Serve, until `stop`."""
        folder = self.workspace.folder
        app = create_app(Settings(folder, f"sqlite:///{folder}/studio.db", "", port=self.port))
        mount_pages(app)
        options: dict[str, Any] = {"log_level": "error", "timeout_graceful_shutdown": 1, "lifespan": "on"}
        self.server = Server(uvicorn.Config(app, port=self.port, **options))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.wait_for_pages()

    def stop(self) -> None:
        """Nobody answers any more."""
        self.server.should_exit = True
        self.thread.join(10)


@contextmanager
def serve(folder: Path, kind: str) -> Iterator[Served]:
    """The studio a module asked for."""
    if kind == "web":
        in_thread = ServedInThread(folder)
        yield in_thread
        in_thread.stop()
        return
    options = {"whole": (), "no worker": ("--no-worker",)}[kind]
    with chaos.running_studio(folder, *options) as studio:
        served = Served(studio.port, studio.workspace, studio)
        served.wait_for_pages()
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for the session."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("browser", "Playwright is not installed")
    if shutil.which(CHROMIUM) is None:
        missing("browser", f"there is no {CHROMIUM}")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The module's studio."""
    folder = tmp_path_factory.mktemp("studio") / "workspace"
    with serve(folder, getattr(request.module, "STUDIO", "web")) as found:
        yield found


@pytest.fixture
def own_web(tmp_path: Path) -> Iterator[ServedInThread]:
    """A web app for one test, which may stop it, start it, and give it users."""
    found = ServedInThread(tmp_path / "workspace")
    yield found
    found.stop()


@dataclass
class StudioPage:
    """Opens pages of the studio, and remembers what went wrong in them."""

    browser: Any
    served: Served
    problems: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def allow(self, *parts: str) -> None:
        """Console messages that hold one of these are meant, such as `status of 422` of a form that is refused."""
        self.allowed += parts

    def open(
        self,
        path: str = "/",
        *,
        language: str = "en",
        theme: str = "light",
        size: tuple[int, int] = DESKTOP,
        reduced_motion: bool = False,
        wait: str = "h1",
        served: Served | None = None,
        **context: Any,
    ) -> Any:
        """A page in a browser context of its own, of the module's studio or `served`; returns when `wait` is there."""
        self.served = served or self.served
        made = self.browser.new_context(
            base_url=self.served.url,
            viewport={"width": size[0], "height": size[1]},
            has_touch=size == PHONE,
            reduced_motion="reduce" if reduced_motion else "no-preference",
            locale="en-GB",
            **context,
        )
        self.contexts.append(made)
        made.add_init_script(
            f"localStorage.getItem('{LANGUAGE_STORE}') ?? localStorage.setItem('{LANGUAGE_STORE}', '{language}');"
            f"localStorage.getItem('{THEME_STORE}') ?? localStorage.setItem('{THEME_STORE}', '{theme}');"
        )
        page = made.new_page()
        page.set_default_timeout(15_000)
        self.watch(page)
        page.goto(path)
        page.wait_for_selector(f".fg-page {wait}")
        return page

    def watch(self, page: Any) -> None:
        """Collect the errors of a page."""

        def said(message: Any) -> None:
            if message.type == "error":
                self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")

        def asked(request: Any) -> None:
            if not request.url.startswith((self.served.url, "data:", "blob:")):
                self.problems.append(f"foreign request: {request.url}")

        page.on("console", said)
        page.on("request", asked)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))

    def check(self) -> None:
        """Fail on what went wrong."""
        wrong = [text for text in self.problems if not any(part in text for part in self.allowed)]
        assert not wrong, "\n".join(wrong)

    def close(self) -> None:
        """Close what is open."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()

    @staticmethod
    def no_sideways_scroll(page: Any) -> None:
        """Fail if a page is wider than its window."""
        wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        culprits = page.evaluate(
            "[...document.querySelectorAll('.fg-page *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
            ".slice(0, 3).map(e => e.outerHTML.slice(0, 120))"
        )
        assert wide <= window, f"{wide} px in a window of {window} px: {culprits}"

    @staticmethod
    def large_targets(page: Any) -> None:
        """Fail on controls that a finger would miss."""
        small = page.evaluate(SMALL_TARGETS)
        assert not small, f"lower than 44 px: {small}"

    @staticmethod
    def accessible(page: Any) -> None:
        """Fail on what axe-core calls serious or critical."""
        try:
            script = resources.files("axe_playwright_python") / "axe.min.js"
            text = script.read_text(encoding="utf-8")
        except ModuleNotFoundError:
            missing("axe", "axe-playwright-python is not installed")
        page.evaluate(f"() => {{ {text} }}")
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        grave = [
            f"{rule['id']}: {rule['help']}: {[node['html'][:160] for node in rule['nodes'][:3]]}"
            for rule in found["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
        assert not grave, "\n".join(grave)


@pytest.fixture
def studio_page(browser: Any, served: Served) -> Iterator[StudioPage]:
    """Pages of the module's studio; afterwards there must have been no error and no foreign request."""
    served.forget_drafts()
    found = StudioPage(browser, served)
    yield found
    found.close()
    found.check()
