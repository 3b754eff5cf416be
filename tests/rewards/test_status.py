"""What stands between a reward and its use is told from card and disk, without torch."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from flash_grpo.rewards.registry import Card, WeightFile, Weights, available, load_card
from flash_grpo.rewards.status import FOLDER, Status, described, find, own_folder, status
from tests.test_cli import flash_grpo


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def card(**changed: object) -> Card:
    files = (
        WeightFile("model.safetensors", 5, None),
        WeightFile("config.json", None, None),
        WeightFile("head.pt", 7, "0" * 64, becomes="head.safetensors"),
    )
    given: dict[str, object] = {"weights": (Weights("someone/net", None, files),), "real_weights": "unverified"}
    return dataclasses.replace(load_card("sharpness"), **(given | changed))  # type: ignore[arg-type]


def test_files_that_are_missing_or_cut_short_are_to_be_downloaded() -> None:
    assert status(card()) == Status(
        "download", 12, ("someone/net/model.safetensors", "someone/net/config.json", "someone/net/head.pt")
    )
    folder = own_folder("someone/net")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"four")
    (folder / "config.json").write_text("{}")
    assert status(card()).missing == ("someone/net/model.safetensors", "someone/net/head.pt")
    (folder / "model.safetensors").write_bytes(b"fives")
    (folder / "head.pt").write_bytes(b"sevenb.")
    assert status(card()).missing == ("someone/net/head.pt",), "it was not converted"
    (folder / "head.safetensors").write_bytes(b"whatever")
    assert status(card()) == Status("ready")


def test_servers_and_later_releases_are_told() -> None:
    assert status(card(asks_server=True)).state == "server"
    assert status(card(environment="own")).state == "server"
    assert status(card(available=False)).state == "later"


def test_verified_means_run_with_the_real_weights() -> None:
    assert not card().verified
    assert card(real_weights="verified: one H200").verified
    assert load_card("sharpness").verified
    assert not load_card("vlm_judge").verified
    assert described(card())["verified"] is False


def test_a_folder_is_itself_and_what_is_nowhere_is_none(tmp_path: Path) -> None:
    assert find(str(tmp_path)) == tmp_path
    assert find("someone/nowhere") is None
    assert find("no hub id at all") is None


def test_the_list_tells_the_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert flash_grpo("rewards", "--json", monkeypatch=monkeypatch) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["vlm_judge"]["status"]["state"] == "server"
    assert entries.keys() == available().keys()
    assert flash_grpo("rewards", monkeypatch=monkeypatch) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "needs server" in table and "ready" in table


def test_no_torch_is_needed() -> None:
    code = (
        "import sys; from flash_grpo.rewards import registry, status; "
        "assert all(map(status.described, registry.available().values())); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
