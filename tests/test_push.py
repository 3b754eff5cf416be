"""Exports arrive whole on a hub, resumed and only as wished, and the token is told to nobody. Against our own hub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flash_grpo import cli
from flash_grpo.events import read_events
from flash_grpo.export_files import write_record
from flash_grpo.files import file_hash
from tests.hub_upload import HubState, Repo, serving

TOKEN, READER, REPO = "hf_a_token_that_may_write", "hf_a_token_that_only_reads", "ann/aligned"
CARD = "---\nlicense: apache-2.0\ntags:\n- lora\n---\n\n# Aligned\n"


def hub_of(**changes: Any) -> HubState:
    return HubState(**{"writers": {TOKEN: "ann"}, "readers": {READER: "ann"}, **changes})


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A folder as `export` leaves it."""
    folder = tmp_path / "first-20"
    (folder / "assets").mkdir(parents=True)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    (folder / "first-000020.safetensors").write_bytes(b"weights" * 1000)
    (folder / "assets" / "curves.png").write_bytes(b"png" * 100)
    write_record(folder, {"flash_grpo.update": "20"})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token but the test's own, and no home where one was saved."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)  # the command itself must see to it


def push(endpoint: str, *words: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", "push", *map(str, words)])
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def test_an_export_arrives_whole_in_one_commit(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub, report = hub_of(), tmp_path / "report"
    with serving(hub) as endpoint:
        assert push(endpoint, export, "--repo", REPO, "--report", report, monkeypatch=monkeypatch) == 0
        repo = hub.repos[REPO]
        assert repo.files == contents(export) and len(repo.commits) == 1 and repo.private
        assert len(hub.puts) == 2, "weights and picture go to the large store"
        result = json.loads((report / "result.json").read_text())
        assert result["url"] == f"{endpoint}/{REPO}" and result["commit"] == repo.commits[0]
        assert set(result["files"]) == contents(export).keys()
        told = [r.data for r in read_events(report) if r.type == "progress" and r.data["phase"] == "upload"]
        assert (told[0]["update"], told[-1]["update"]) == (0, result["bytes"])
        assert f"sent 5 files to {endpoint}/{REPO} (private)" in capsys.readouterr().out
        # The same again sends nothing and makes no empty commit.
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 0
        assert len(hub.puts) == 2 and len(repo.commits) == 1
        # Another export of the same name replaces what changed.
        (export / "first-000020.safetensors").write_bytes(b"others" * 1000)
        write_record(export, {"flash_grpo.update": "20"})
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 0
    assert repo.files == contents(export) and len(repo.commits) == 2 and len(hub.puts) == 3


def test_what_arrived_is_kept_and_the_rest_is_sent_later(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = hub_of(fail_after=1)
    with serving(hub) as endpoint:
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 2
        assert "refuses ann/aligned (400)" in capsys.readouterr().err
        assert len(hub.puts) == 1 and hub.repos[REPO].commits == []
        hub.fail_after = None
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 0
    assert len(hub.puts) == 2 == len(set(hub.puts)), "what had arrived was not sent again"
    assert hub.repos[REPO].files == contents(export)


@pytest.mark.parametrize("public", [False, True])
def test_the_repository_is_as_public_as_it_was_asked_to_be(
    public: bool, export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [export, "--repo", REPO, *(["--public"] if public else [])]
    hub = hub_of()
    with serving(hub) as endpoint:
        assert push(endpoint, *words, monkeypatch=monkeypatch) == 0
        assert hub.repos[REPO].private is not public
        hub.repos[REPO] = Repo(private=public)  # one that is there already and is the other way
        capsys.readouterr()
        assert push(endpoint, *words, monkeypatch=monkeypatch) == (0 if public else 2)
    said = capsys.readouterr().err
    if public:
        assert "warning: ann/aligned is there already and private, and stays so" in said
    else:
        assert "already and public, and the export was to be private" in said
        assert hub.repos[REPO].files == {}, "something private was sent to a public place"


REFUSED = [
    (READER, REPO, {}, 2, "the token may not write to ann on"),
    (TOKEN, "bob/his", {}, 2, "the token may not write to bob on"),
    (TOKEN, "bob/his", {"repos": {"bob/his": Repo(False)}}, 2, "bob/his is there already and public"),
    (TOKEN, "bob/his", {"repos": {"bob/his": Repo(True)}}, 2, "the token may not write to bob on"),
    (READER, REPO, {"repos": {REPO: Repo(False)}}, 2, "already and public"),
    ("hf_nobody_knows_it", REPO, {}, 2, "does not know the token (401)"),
    (TOKEN, REPO, {"busy": 500}, 1, "status 500); check the connection and repeat it"),
    (TOKEN, REPO, {"busy": 429}, 1, "status 429"),
    (TOKEN, "aligned", {}, 2, "expected a repository as OWNER/NAME, got 'aligned'"),
    (TOKEN, "a/b/c", {}, 2, "expected a repository as OWNER/NAME, got 'a/b/c'"),
    (TOKEN, "ann/a..b", {}, 2, "expected a repository as OWNER/NAME"),
    (TOKEN, "ann/x.git", {}, 2, "does not take the name 'ann/x.git'"),
    (None, REPO, {}, 2, "no token to send with: set HF_TOKEN"),
    ("two words", REPO, {}, 2, "what is in HF_TOKEN is no token"),
]


@pytest.mark.parametrize(
    ("token", "repo", "changes", "code", "sentence"), REFUSED, ids=[case[4][:30] for case in REFUSED]
)
def test_what_cannot_be_sent_is_one_sentence_without_the_token(
    token: str | None, repo: str, changes: dict[str, Any], code: int, sentence: str, export: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("HF_TOKEN") if token is None else monkeypatch.setenv("HF_TOKEN", token)
    hub = hub_of(**changes)
    with serving(hub) as endpoint:
        words = [export, "--repo", repo, "--report", tmp_path / "report"]
        assert push(endpoint, *words, monkeypatch=monkeypatch) == code
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error and error.count("\n") == 1, error
    assert token is None or token not in error + (tmp_path / "report" / "events.jsonl").read_text()
    assert all(not found.files for found in hub.repos.values()) and hub.puts == []


def test_a_card_that_the_hub_does_not_take_is_told_before_anything_is_committed(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (export / "README.md").write_text("---\ntags: lora\n---\n", encoding="utf-8")
    write_record(export, {})
    hub = hub_of()
    with serving(hub) as endpoint:
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 2
    assert '"tags" must be an array' in capsys.readouterr().err
    assert hub.repos[REPO].commits == []


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda folder: (folder / "first-000020.safetensors").write_bytes(b"x"), "its hash differs from SHA256SUMS"),
        (lambda folder: (folder / "README.md").unlink(), "lacks the file 'README.md'"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), "holds no readable SHA256SUMS"),
        (lambda folder: (folder / "SHA256SUMS").write_text("x  ../../etc/passwd\n"), "a line that is none of ours"),
        (lambda folder: (folder / "SHA256SUMS").write_text("0" * 64 + "  ../secret\n"), "a line that is none of ours"),
        (
            lambda folder: (folder / "SHA256SUMS").write_text("0" * 64 + "  /etc/passwd\n"),
            "a line that is none of ours",
        ),
    ],
)
def test_nothing_but_a_whole_export_is_sent(
    harm: Any, sentence: str, export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(export)
    hub = hub_of()
    with serving(hub) as endpoint:
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 2
    assert sentence in capsys.readouterr().err and hub.requests == []


def test_files_beside_an_export_stay_here(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (export / "notes.txt").write_text("mine")
    (export / "first-000020.safetensors").rename(export / "weights")
    (export / "first-000020.safetensors").symlink_to(export / "weights")
    hub = hub_of()
    with serving(hub) as endpoint:
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 2, "a link leads anywhere"
        (export / "first-000020.safetensors").unlink()
        (export / "weights").rename(export / "first-000020.safetensors")
        assert push(endpoint, export, "--repo", REPO, monkeypatch=monkeypatch) == 0
    assert "notes.txt" not in hub.repos[REPO].files


def test_the_token_goes_to_the_hub_alone(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = hub_of()
    with serving(hub) as endpoint:
        words = [export, "--repo", REPO, "--report", tmp_path / "report"]
        assert push(endpoint, *words, monkeypatch=monkeypatch) == 0
    stored = [headers for method, path, headers in hub.requests if path.startswith("/storage/")]
    assert stored and not any("authorization" in headers for headers in stored)
    assert all(
        headers["authorization"] == f"Bearer {TOKEN}" for _, path, headers in hub.requests if "/storage/" not in path
    )
    captured = capsys.readouterr()
    written = [
        captured.out.encode(),
        captured.err.encode(),
        *contents(tmp_path).values(),
        *hub.repos[REPO].files.values(),
    ]
    assert not any(TOKEN.encode() in text for text in written)


def test_without_a_hub_it_is_one_sentence_and_a_signal_ends_it(export: Path, tmp_path: Path) -> None:
    hub = hub_of(delay=60)
    words = [sys.executable, "-m", "flash_grpo.cli", "push", str(export), "--repo", REPO]
    with serving(hub) as endpoint:
        environment = {**os.environ, "HF_ENDPOINT": endpoint}
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
        deadline = time.monotonic() + 20
        while not hub.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=10)
        assert (process.returncode, error) == (130, "flash-grpo: interrupted\n")
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"cannot send to {REPO} on {endpoint} (" in done.stderr and TOKEN not in done.stderr


def test_the_sums_are_those_of_the_files(export: Path) -> None:
    """Control of the fixture: what is verified are the files themselves."""
    lines = dict(line.split("  ")[::-1] for line in (export / "SHA256SUMS").read_text().splitlines())
    assert lines == {name: file_hash(export / name) for name in contents(export) if name != "SHA256SUMS"}
