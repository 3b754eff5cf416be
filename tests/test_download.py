"""Downloads are pinned, verified, resumed and whole, or leave one sentence and no folder. Against a hub of our own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_grpo import cli
from flash_grpo.download import is_safe
from flash_grpo.events import read_events
from tests.hub_server import COMMIT, HubState, serving

REPO, WEIGHTS, TOKEN = "someone/small", "transformer/diffusion_pytorch_model.safetensors", "hf_a_secret_of_the_user"
MEGABYTE = 2**20


def state(megabytes: float = 0.1, **changes: Any) -> HubState:
    weights = np.random.default_rng(0).bytes(int(megabytes * MEGABYTE))
    files = {
        "README.md": b"# Small\n",
        "model_index.json": b'{"_class_name": "WanPipeline"}',
        "tokenizer/spiece.model": b"\x00vocabulary",
        "LICENSE": b"Apache",
        WEIGHTS: weights,
        "transformer/pytorch_model.bin": b"\x80\x04pickle",
        "modeling.py": b"import os",
        ".gitattributes": b"*.safetensors filter=lfs",
        "../outside.json": b"{}",
    }
    return HubState(files, {WEIGHTS}, **changes)


LOADED = {"README.md", "model_index.json", "tokenizer/spiece.model", "LICENSE", WEIGHTS}


def flash_grpo(*arguments: object, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, arguments)])
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token but the test's own, and no home where one was saved."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)  # as the command itself sets


def files_of(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_whole_download_is_pinned_verified_and_of_safe_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub, output, report = state(), tmp_path / "models" / "small", tmp_path / "report"
    with serving(hub) as endpoint:
        words = ["download", REPO, "--revision", "v1", "--output", output, "--report", report]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
        out = capsys.readouterr().out
        assert f"{REPO} at commit {COMMIT}: 5 files" in out and "licence apache-2.0" in out
        found = files_of(output)
        source = json.loads(found.pop("source.json"))
        assert found == {name: hub.files[name] for name in LOADED}
        assert (source["repo"], source["commit"], source["licence"], source["kind"]) == (
            REPO, COMMIT, "apache-2.0", "model"
        )  # fmt: skip
        [weights] = [file for file in source["files"] if file["path"] == WEIGHTS]
        assert weights["sha256"] == hashlib.sha256(hub.files[WEIGHTS]).hexdigest()
        assert set(source["left_out"]) == hub.files.keys() - LOADED
        assert leftovers(tmp_path / "models") == ["small"] and not (tmp_path / "outside.json").exists()
        result = json.loads((report / "result.json").read_text())
        assert result == {"folder": str(output), **source}
        told = [r.data for r in read_events(report) if r.type == "progress" and r.data["phase"] == "download"]
        assert (told[0]["update"], told[-1]["update"]) == (0, source["size"])
        # The same commit again is there already; another one is refused.
        before = len(hub.requests)
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
        assert len(hub.requests) == before + 1
        hub.commit = "f" * 40
        words[3] = "main"
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 2
        assert "exists and holds something else" in capsys.readouterr().err
        assert files_of(output)["model_index.json"] == hub.files["model_index.json"]


def test_a_connection_cut_in_the_middle_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = state(24, cut_at=15 * MEGABYTE)
    with serving(hub) as endpoint:
        words = ["download", REPO, "--output", tmp_path / "m"]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
    assert hub.ranges() == [f"bytes={10 * MEGABYTE}-"]
    assert (tmp_path / "m" / WEIGHTS).read_bytes() == hub.files[WEIGHTS]


def test_a_download_that_broke_off_is_resumed_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub, report = state(24, cut_at=15 * MEGABYTE, refuse_after_cut=True), tmp_path / "report"
    with serving(hub) as endpoint:
        words = ["download", REPO, "--output", tmp_path / "out" / "m", "--report", report]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 1
        error = capsys.readouterr().err
        assert "(status 500); check the connection and repeat the command: what has arrived is kept" in error
        assert read_events(report)[-1].type == "failed"
        assert leftovers(tmp_path / "out") == [f".m.{COMMIT[:12]}.partial"]
        hub.refuse_after_cut = False
        hub.requests.clear()
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
    assert hub.ranges() == [f"bytes={10 * MEGABYTE}-"]
    assert [path for _, path, _ in hub.requests if "resolve" in path] == [f"/{REPO}/resolve/{COMMIT}/{WEIGHTS}"]
    assert files_of(tmp_path / "out" / "m")[WEIGHTS] == hub.files[WEIGHTS]
    told = [r.data for r in read_events(report) if r.attempt == 2 and r.type == "progress"]
    assert told[1]["update"] >= 10 * MEGABYTE
    assert leftovers(tmp_path / "out") == ["m"]


def test_a_part_that_was_tampered_with_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = state(24, cut_at=15 * MEGABYTE, refuse_after_cut=True)
    with serving(hub) as endpoint:
        words = ["download", REPO, "--output", tmp_path / "out" / "m"]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 1
        part = tmp_path / "out" / f".m.{COMMIT[:12]}.partial" / f"{WEIGHTS}.part"
        part.write_bytes(b"x" + part.read_bytes()[1:])
        hub.refuse_after_cut = False
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 1
        assert "does not match the hub's hash; it was removed" in capsys.readouterr().err
        assert not (tmp_path / "out" / "m").exists() and not part.exists()
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0


@pytest.mark.parametrize("name", [WEIGHTS, "model_index.json"])
def test_a_wrong_hash_leaves_no_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(state(wrong_hash=name)) as endpoint:
        words = ["download", REPO, "--output", tmp_path / "m"]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 1
    assert f"{name} of {REPO} does not match the hub's hash" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_a_full_disk_is_seen_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    hub = state(24)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 20 * 10**6))
    with serving(hub) as endpoint:
        words = ["download", REPO, "--output", tmp_path / "m"]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 2
    assert f"{REPO} needs 0.03 GB more" in capsys.readouterr().err and len(hub.requests) == 1


def refused(hub: HubState, words: list[object], monkeypatch: pytest.MonkeyPatch, output: Path, code: int = 2) -> None:
    with serving(hub) as endpoint:
        words = ["download", *words, "--output", output]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == code
    assert not output.exists()


@pytest.mark.parametrize(
    ("changes", "words", "sentence"),
    [
        ({"gated": 403}, [REPO], "asks for consent before it is downloaded; accept its terms on its page"),
        ({"gated": 401}, [REPO], "asks for consent"),
        ({}, ["someone/unknown"], "shows no repository someone/unknown; check its name, or if it is private"),
        ({"token": TOKEN}, [REPO], "shows no repository someone/small"),
        ({}, [REPO, "--revision", "v7"], "someone/small has no revision 'v7'"),
        ({}, ["a/b/c"], "expected a repository as OWNER/NAME, got 'a/b/c'"),
        ({}, [REPO, "--kind", "modle"], "expected the kind model or reward, got 'modle'"),
    ],
)  # fmt: skip
def test_what_cannot_be_downloaded_is_one_sentence(
    changes: dict[str, Any], words: list[object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    refused(state(**changes), words, monkeypatch, tmp_path / "m")
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert error.strip().count("\n") == 0


def test_a_repository_without_safe_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = state()
    del hub.files[WEIGHTS]
    refused(hub, [REPO], monkeypatch, tmp_path / "m")
    assert "has no safetensors weights: it holds transformer/pytorch_model.bin, and loading" in capsys.readouterr().err
    hub = state()
    del hub.files["model_index.json"]
    refused(hub, [REPO], monkeypatch, tmp_path / "m")
    assert "is no diffusers pipeline: it has no model_index.json" in capsys.readouterr().err
    hub.card = None
    with serving(hub) as endpoint:
        words = ["download", REPO, "--kind", "reward", "--output", tmp_path / "m"]
        assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
    assert f"warning: {REPO} names no licence" in capsys.readouterr().err


def test_the_token_opens_a_private_repository_and_is_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    elsewhere = state()
    with serving(elsewhere) as other:
        hub = state(token=TOKEN, elsewhere=other)
        with serving(hub) as endpoint:
            words = ["download", REPO, "--output", tmp_path / "m", "--report", tmp_path / "report"]
            assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 0
            monkeypatch.setenv("HF_TOKEN", TOKEN + "x")
            assert flash_grpo(*words, monkeypatch=monkeypatch, endpoint=endpoint) == 2
    assert {headers.get("authorization") for _, _, headers in hub.requests} >= {f"Bearer {TOKEN}"}
    assert elsewhere.requests and not any("authorization" in headers for _, _, headers in elsewhere.requests)
    captured = capsys.readouterr()
    written = [captured.out.encode(), captured.err.encode(), *files_of(tmp_path).values()]
    assert not any(TOKEN.encode() in text for text in written)
    assert "use a token in HF_TOKEN whose account may read it" in captured.err


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_hub_it_is_one_sentence(offline: bool, tmp_path: Path) -> None:
    with serving(state()) as endpoint:
        pass  # and it is gone
    environment = {**os.environ, "HF_ENDPOINT": endpoint, **({"HF_HUB_OFFLINE": "1"} if offline else {})}
    words = [sys.executable, "-m", "flash_grpo.cli", "download", REPO, "--output", str(tmp_path / "m")]
    words += ["--report", str(tmp_path / "report")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    expected = "HF_HUB_OFFLINE forbids downloads" if offline else f"cannot download {REPO} from {endpoint} ("
    assert (done.returncode, done.stdout) == (2 if offline else 1, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1
    assert read_events(tmp_path / "report")[-1].data["message"].startswith(expected)


def test_a_signal_ends_a_download_that_waits(tmp_path: Path) -> None:
    hub = state(24, delay=60)
    with serving(hub) as endpoint:
        words = [sys.executable, "-m", "flash_grpo.cli", "download", REPO, "--output", str(tmp_path / "out" / "m")]
        words += ["--report", str(tmp_path / "report")]
        process = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ, "HF_ENDPOINT": endpoint}
        )
        deadline = time.monotonic() + 20
        while not hub.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (130, "flash-grpo: interrupted\n")
    assert read_events(tmp_path / "report")[-1].data["status"] == "interrupted"
    assert not (tmp_path / "out" / "m").exists()


def test_files_that_may_run_code_or_lie_outside_are_not_safe() -> None:
    for name in ("a.safetensors", "x/config.json", "merges.txt", "spiece.model", "README.md", "LICENSE"):
        assert is_safe(name), name
    for name in ("a.bin", "a.pt", "a.ckpt", "a.pkl", "a.py", "a.msgpack", "a.h5", "../a.json", "/etc/a.json",
                 ".cache/a.json", "a/../../b.json", "a\\b.json", "source.json", "a.safetensors.exe"):  # fmt: skip
        assert not is_safe(name), name
