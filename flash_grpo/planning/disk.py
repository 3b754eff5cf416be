"""The bytes of a run folder, from its configuration alone: for the plan, and for the check before a run. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from flash_grpo.config import RunConfig
from flash_grpo.planning.workload import validations

VALIDATION_SAMPLES = 4
"""Videos saved of every validation."""
SHOWN_AT_LEAST = 256
"""Short side of saved videos, as in `video`, which a plan need not load."""

# Measured on runs of the built-in models; of videos the largest, as a disk that runs full ends a run.
VIDEO_BYTES_PER_PIXEL = 0.1
EVENT_BYTES_PER_UPDATE = 4096.0
CHART_BYTES = 100_000.0
SHEET_BYTES, SHEET_BYTES_PER_ROW = 150_000.0, 60_000.0


@dataclass(frozen=True)
class Disk:
    """Bytes a finished run leaves, and the most it needs while a checkpoint replaces another."""

    checkpoint: float
    checkpoints: float
    videos: float
    report: float
    events: float

    @property
    def most(self) -> float:
        """The most the run folder holds."""
        return self.checkpoints + self.checkpoint + self.videos + self.report + self.events


def disk_of_run(config: RunConfig, trained: int, validation: int, heldout: int) -> Disk:
    """Checkpoints with average and optimiser state, videos, chart and contact sheet, events.

    `trained` is the number of trained parameters, `validation` and `heldout` the prompts of the two evaluation sets.
    """
    copies = 1 + (config.ema_decay > 0) + (2 if config.optimizer == "adamw" else 0)
    checkpoint = 4.0 * trained * copies
    # The best one stays beside those kept.
    kept = min(config.keep_checkpoints + 1, max(validations(config), -(-config.updates // config.checkpoint_every)))
    shown = min(config.videos_saved, heldout)
    videos = min(VALIDATION_SAMPLES, validation) * (1 + validations(config)) + 2 * shown
    scale = max(1, -(-SHOWN_AT_LEAST // min(config.height, config.width)))
    video = VIDEO_BYTES_PER_PIXEL * config.frames * config.height * config.width * scale**2
    report = CHART_BYTES + (SHEET_BYTES + SHEET_BYTES_PER_ROW * shown if shown else 0.0)
    return Disk(checkpoint, kept * checkpoint, videos * video, report, EVENT_BYTES_PER_UPDATE * (config.updates + 10))
