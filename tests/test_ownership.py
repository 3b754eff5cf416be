"""The lock of a run folder: one owner at a time, and one that lost it writes nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo.events import EventLog, Metrics, Warning_, read_events
from flash_grpo.ownership import OwnershipLost, read_owner, take_ownership
from flash_grpo.trainer import resume
from tests.runs import at, run


def test_tokens_grow_with_every_owner(tmp_path: Path) -> None:
    for token in (1, 2, 3):
        ownership = take_ownership(tmp_path)
        assert ownership.token == token
        ownership.check()
        ownership.release()


def test_a_living_owner_is_respected(tmp_path: Path) -> None:
    take_ownership(tmp_path)
    with pytest.raises(InputError, match=f"is in the hands of process {os.getpid()} on .*--take-over"):
        take_ownership(tmp_path)


def test_a_dead_owner_is_not(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from flash_grpo.ownership import *; take_ownership(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert take_ownership(tmp_path).token == 2


def test_a_process_that_reuses_the_number_is_no_owner(tmp_path: Path) -> None:
    ownership = take_ownership(tmp_path)
    earlier = replace(ownership.owner, process_started=ownership.owner.process_started - 3600)
    (tmp_path / "lock").write_text(json.dumps(asdict(earlier)), encoding="utf-8")
    assert take_ownership(tmp_path).token == 2


def test_an_owner_on_another_machine_must_be_taken_over_on_purpose(tmp_path: Path) -> None:
    elsewhere = replace(take_ownership(tmp_path).owner, host="another-machine")
    (tmp_path / "lock").write_text(json.dumps(asdict(elsewhere)), encoding="utf-8")
    with pytest.raises(InputError, match="may be in the hands of process .* on another-machine"):
        take_ownership(tmp_path)
    assert take_ownership(tmp_path, take_over=True).token == 2


def test_who_lost_the_folder_neither_writes_nor_releases(tmp_path: Path) -> None:
    first = take_ownership(tmp_path)
    with EventLog(tmp_path, first.token, first.check) as log:
        log.emit(Warning_("mine", "test"))
        second = take_ownership(tmp_path, take_over=True)
        with pytest.raises(OwnershipLost, match=f"was taken over by process {os.getpid()}"):
            log.emit(Warning_("no longer mine", "test"))
    assert [record.data["message"] for record in read_events(tmp_path)] == ["mine"]
    first.release()
    assert read_owner(tmp_path) == second.owner
    second.check()


def test_a_torn_lock_owns_nothing(tmp_path: Path) -> None:
    ownership = take_ownership(tmp_path)
    (tmp_path / "lock").write_text('{"token": 1', encoding="utf-8")
    with pytest.raises(OwnershipLost, match="somebody who removed its lock"):
        ownership.check()


def test_a_run_that_is_taken_over_stops_and_writes_nothing_more(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    after: dict[Path, int] = {}

    def rob() -> None:
        thief = take_ownership(output, take_over=True)
        thief.release()
        after.update({path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()})

    with pytest.raises(OwnershipLost):
        run(tiny_folder, output, at(Metrics, rob), updates=50)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()} == after
    assert resume(output, {"updates": 2})["status"] == "done"


def test_attempts_are_numbered_by_the_token(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    run(tiny_folder, output, updates=1)
    resume(output, {"updates": 2})
    assert {record.attempt for record in read_events(output, fold=False)} == {1, 2}
