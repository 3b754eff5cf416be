"""Types of links that only this pack's nodes know."""

from __future__ import annotations

from comfy_api.latest import io

CATEGORY = "Flash-GRPO"
Checkpoint = io.Custom("FLASH_GRPO_CHECKPOINT")
"""The name of a checkpoint as the loader lists it."""
FactsType = io.Custom("FLASH_GRPO_FACTS")
"""What a checkpoint's metadata says (logic.facts.Facts)."""
Scores = io.Custom("FLASH_GRPO_SCORES")
"""Rewards of a video by name."""
Settings = io.Custom("FLASH_GRPO_SETTINGS")
"""What two videos were sampled with."""
