"""What a machine offers, read from nvidia-smi's answers; none of it needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.devices import ask_smi, cpu_slots, environment, facts, gpus, offered

ANSWER = "0, GPU-aaa, NVIDIA H200, 143771, 9.0\n1, GPU-bbb, NVIDIA H200, [N/A], 9.0\nnonsense\n"


def test_gpus_are_read_and_those_hidden_from_the_worker_are_not_offered() -> None:
    found = gpus(lambda query: ANSWER)
    assert [(gpu.name, gpu.memory_mb, gpu.capability) for gpu in found] == [
        ("cuda:0", 143771, "9.0"),
        ("cuda:1", 0, "9.0"),
    ]
    assert [gpu.name for gpu in gpus(lambda query: ANSWER, visible="GPU-bbb")] == ["cuda:1"]
    assert [gpu.name for gpu in gpus(lambda query: ANSWER, visible="0, 7")] == ["cuda:0"]
    assert gpus(lambda query: ANSWER, visible="") == []


def test_without_a_driver_there_are_cpu_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ask_smi("index") is None
    assert [device.name for device in offered(3, None)] == ["cpu:0", "cpu:1", "cpu:2"]


def test_devices_by_name() -> None:
    found = gpus(lambda query: ANSWER)
    assert [device.name for device in offered(1, None, found)] == ["cuda:0", "cuda:1"]
    assert [device.name for device in offered(1, "cuda:1, cpu:4,cuda:1", found)] == ["cuda:1", "cpu:4"]
    assert offered(0, None, []) == [] and offered(1, "", found) == []
    with pytest.raises(InputError, match="no device 'cuda:7' here"):
        offered(1, "cuda:7", found)
    with pytest.raises(InputError, match="expected a number of CPU slots"):
        offered(-1, None, [])


def test_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert environment(("cpu:0",), 2)["OMP_NUM_THREADS"] == "4"
    assert environment(("cpu:0",), 100)["OMP_NUM_THREADS"] == "1"


def test_facts_are_plain(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.prepare()
    found = facts(workspace, with_gpus=False)
    assert found["cores"] >= 1 and found["disk_free_mb"] > 0 and "gpus" not in found
    assert [slot.memory_mb > 0 for slot in cpu_slots(2)] == [True, True]
