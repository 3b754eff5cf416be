"""Going on with a run: which checkpoint, under which configuration, and what may have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_grpo.checkpoint import Restored, newest_resumable
from flash_grpo.config import RunConfig, load_config, with_overrides
from flash_grpo.errors import InputError
from flash_grpo.events import read_events


@dataclass(frozen=True)
class Change:
    """A configuration key whose value is another than when the checkpoint was written."""

    key: str
    before: Any
    after: Any
    allowed: bool

    def __str__(self) -> str:
        return f"{self.key}: {self.before!r} -> {self.after!r}"


def changes(before: Mapping[str, Any], after: RunConfig) -> list[Change]:
    """What differs between a checkpoint's configuration and the one to go on with.

    A key that the checkpoint's version did not have yet counts with its default.
    """
    found = []
    for key, field in RunConfig.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        old = before.get(key, field.get_default(call_default_factory=True))
        new = getattr(after, key)
        if old != new:
            found.append(Change(key, old, new, bool(extra["may_change"]) and not _bends_schedule(key, after)))
    return found


def _bends_schedule(key: str, config: RunConfig) -> bool:
    """Under a decaying learning rate the number of updates decides every update's rate."""
    return key == "updates" and config.learning_rate_schedule != "constant"


def resumed_config(folder: Path, overrides: Mapping[str, Any]) -> RunConfig:
    """The configuration a run goes on with; InputError if the folder holds no run or the run is done."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise InputError(f"{folder} is no run folder: it holds no config.yaml; name the folder that train wrote")
    config = load_config(file)
    changed = with_overrides(config, overrides)
    summary = folder / "summary.json"
    done = summary.is_file() and json.loads(summary.read_text(encoding="utf-8")).get("status") == "done"
    if done and changed.updates <= config.updates:
        raise InputError(
            f"the run {folder} is done; to train it further, give more updates: --set updates={config.updates * 2}"
        )
    return changed


def preset_of(folder: Path) -> str | None:
    """The preset a run was started from, as its log says."""
    started = next((record for record in read_events(folder) if record.type == "run_started"), None)
    return started.data.get("preset") if started else None


def restore_point(folder: Path, config: RunConfig) -> tuple[Restored | None, list[str], Sequence[Change]]:
    """The newest checkpoint that is whole, a sentence per damaged newer one, and the permitted changes.

    Raises InputError, listing all differences, if the configuration means another training than the checkpoint's.
    """
    restored, damaged = newest_resumable(folder)
    found = changes(restored.document["config"], config) if restored else []
    refused = [change for change in found if not change.allowed]
    if refused:
        listed = "; ".join(str(change) for change in found)
        raise InputError(
            f"cannot go on under a configuration that trains something else ({listed}); "
            f"set {', '.join(change.key for change in refused)} back, or start a new run with `flash-grpo train`"
        )
    return restored, damaged, found
