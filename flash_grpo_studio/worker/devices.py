"""What a machine offers: GPUs as nvidia-smi lists them, else CPU slots; and how busy it is."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from flash_grpo.errors import InputError
from flash_grpo_studio.app.workspace import Workspace

QUERY = "index,uuid,name,memory.total,compute_cap"
_SMI_SECONDS = 20.0


@dataclass(frozen=True)
class Device:
    """One device that a run can have for itself: cuda:N in the order of the PCI bus, or cpu:N, a share of the cores."""

    name: str
    kind: str
    model: str
    memory_mb: int
    capability: str | None = None
    uuid: str | None = None

    def plain(self) -> dict[str, Any]:
        """As the store keeps it."""
        return asdict(self)


def ask_smi(query: str) -> str | None:
    """What nvidia-smi answers to --query-gpu; None where there is no GPU or no driver."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def gpus(ask: Callable[[str], str | None] = ask_smi, visible: str | None = None) -> list[Device]:
    """The machine's GPUs, or those named by `visible`, a CUDA_VISIBLE_DEVICES that was set for the worker."""
    found = []
    for line in (ask(QUERY) or "").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(QUERY.split(",")) and cells[0].isdigit():
            index, uuid, model, memory, capability = cells
            memory_mb = int(float(memory)) if memory.replace(".", "").isdigit() else 0
            found.append(Device(f"cuda:{index}", "cuda", model, memory_mb, capability, uuid))
    if visible is None:
        return found
    wanted = [name.strip() for name in visible.split(",")]
    return [gpu for gpu in found if gpu.name.removeprefix("cuda:") in wanted or gpu.uuid in wanted]


def cpu_slots(count: int) -> list[Device]:
    """A machine's cores and memory in equal shares."""
    model = platform.processor() or platform.machine()
    memory = psutil.virtual_memory().total // 2**20 // max(1, count)
    return [Device(f"cpu:{number}", "cpu", model, memory) for number in range(count)]


def offered(slots: int, names: str | None, found: Sequence[Device] | None = None) -> list[Device]:
    """The devices a worker leases out: all GPUs, or CPU slots where there is none, or those of `names`.

    Raises InputError for a device that is not there.
    """
    if slots < 0:
        raise InputError(f"expected a number of CPU slots from 0, got {slots}")
    present = list(gpus(visible=os.environ.get("CUDA_VISIBLE_DEVICES")) if found is None else found)
    wanted = [name.strip() for name in names.split(",") if name.strip()] if names is not None else None
    if wanted is None:
        return present or cpu_slots(slots)
    highest = max((int(n[4:]) for n in wanted if n.startswith("cpu:") and n[4:].isdigit()), default=-1)
    known = {device.name: device for device in [*present, *cpu_slots(max(slots, highest + 1))]}
    if missing := [name for name in wanted if name not in known]:
        there = ", ".join(device.name for device in present) or "no GPU"
        raise InputError(f"no device {missing[0]!r} here (found: {there}; cpu:0, cpu:1, ... are always possible)")
    return [known[name] for name in dict.fromkeys(wanted)]


def environment(devices: Sequence[str], slots: int) -> dict[str, str]:
    """What lets a run see the devices leased to it and no others, and take its share of the cores."""
    indices = [name.removeprefix("cuda:") for name in devices if name.startswith("cuda:")]
    share = max(1, (os.cpu_count() or 1) // max(1, slots))
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which nvidia-smi numbers them
        "CUDA_VISIBLE_DEVICES": ",".join(indices),
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(share),
    }


def facts(workspace: Workspace, with_gpus: bool) -> dict[str, Any]:
    """How busy the machine is, for people to look at."""
    memory = psutil.virtual_memory()
    found: dict[str, Any] = {
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_mb": memory.total // 2**20,
        "memory_free_mb": memory.available // 2**20,
        "disk_free_mb": workspace.free_bytes() // 2**20,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    if with_gpus:
        answer = ask_smi("index,memory.used,utilization.gpu") or ""
        rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]
        found["gpus"] = {
            f"cuda:{row[0]}": {"memory_used_mb": row[1], "utilization": row[2]} for row in rows if len(row) == 3
        }
    return found
