"""How fast this studio's own devices were: the pace of an earlier run is worth more than any assumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo.config import RunConfig, validate_config
from flash_grpo.errors import InputError
from flash_grpo.plan import Plan, plan
from flash_grpo.planning.speed import TERA, Speed
from flash_grpo_studio.app.jobs.access import Actor, visible
from flash_grpo_studio.app.store.metrics import VALUES
from flash_grpo_studio.app.store.tables import Job, Metric, MetricSeries

ALIKE = ("model", "height", "width", "frames", "dtype", "adapter", "gradient_checkpointing", "device")
"""Keys by which a run's speed depends on what a plan does not know of a machine."""
UPDATES = 20
"""The newest ones are what a pace is told from, once there are as many as LEAST."""
LEAST = 3
LOOKED_AT = 3
"""Runs of a preset that are looked at, the newest first."""
UNIT = Speed(TERA, TERA, "for comparing alone", "assumed")


@dataclass(frozen=True)
class OwnPace:
    """Seconds that an update took in an earlier run with this configuration."""

    config: RunConfig
    seconds: float
    run: str

    def speed(self, config: RunConfig, planned: Plan) -> Speed | None:
        """The speed at which the earlier run would have been planned right; None if `config` is of another size."""
        if any(getattr(self.config, key) != getattr(config, key) for key in ALIKE):
            return None
        try:
            then = plan(self.config, planned.devices, None, UNIT, planned.kind, planned.pipeline, planned.prompts)
        except InputError:  # a configuration of another day
            return None
        assert then.duration is not None
        # Rewards run beside the networks, and what they take follows no speed.
        networks = then.duration.per_update - then.duration.update["reward"]
        reached = UNIT.denoiser * networks / self.seconds
        source = f"measured: {self.seconds:.3g} s for an update of the run {self.run!r}"
        return replace(UNIT, denoiser=reached, decoder=reached, source=source, basis="earlier")


def own_paces(session: Session, actor: Actor, preset: str, devices: int) -> list[OwnPace]:
    """Paces of the newest runs of a preset on as many devices, newest first."""
    query = (
        select(Job.id, Job.name)
        .where(visible(actor, Job), Job.kind == "alignment", Job.preset == preset, Job.devices == devices)
        .where(Job.update > LEAST)
        .order_by(Job.changed.desc())
        .limit(LOOKED_AT)
    )
    found = []
    for id_, name in session.execute(query).all():
        # Of these few alone: a spec holds all prompts of its job.
        config = _config(session.scalar(select(Job.spec["config"]).where(Job.id == id_)))
        seconds = _seconds(session, id_)
        if config is not None and seconds is not None:
            found.append(OwnPace(config, seconds, name))
    return found


def _config(values: Mapping[str, Any] | None) -> RunConfig | None:
    try:
        return validate_config(dict(values or {}))
    except InputError:
        return None


def _seconds(session: Session, job_id: str) -> float | None:
    """Seconds of an update over all its phases, the median of the newest; never the first, which warms up."""
    series = select(MetricSeries.position).where(MetricSeries.job_id == job_id, MetricSeries.name.like("seconds/%"))
    places = session.scalars(series).all()
    newest = select(Metric.values).where(Metric.job_id == job_id, Metric.update > 1).order_by(Metric.update.desc())
    rows = [np.frombuffer(row, VALUES) for row in session.scalars(newest.limit(UPDATES))]
    if not places or len(rows) < LEAST:
        return None
    sums = [float(np.nansum([row[place] for place in places if place < len(row)])) for row in rows]
    return float(np.median(sums)) or None
