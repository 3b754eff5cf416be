"""How often the kernel ended processes of this machine or container for lack of memory."""

from __future__ import annotations

import re
from pathlib import Path

_CGROUP, _PROC = Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")


def kernel_kills(files: tuple[Path, ...] = (_CGROUP, _PROC)) -> int:
    """Kills counted so far; a count that grew while a run lived explains its SIGKILL. 0 where nothing counts them."""
    total = 0
    for file in files:
        try:
            text = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            continue
        total += sum(int(count) for count in re.findall(r"^oom_kill (\d+)$", text, re.MULTILINE))
    return total
