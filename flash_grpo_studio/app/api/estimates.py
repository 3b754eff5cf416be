"""How long a job still takes, and the device-hours it has used and will use, as a price where a rate is set."""

from __future__ import annotations

from pydantic import BaseModel, Field

from flash_grpo_studio.app.jobs.states import ENDED
from flash_grpo_studio.app.store.rates import Rate
from flash_grpo_studio.app.store.tables import Job


class Between(BaseModel):
    """A range in which eight of ten outcomes are expected."""

    low: float
    high: float

    def scaled(self, factor: float, plus: float = 0.0) -> Between:
        """The range in other units, beginning at `plus`."""
        return Between(low=plus + self.low * factor, high=plus + self.high * factor)


class PriceView(BaseModel):
    """A price by the studio's present rate."""

    currency: str
    used: float
    expected: Between | None = Field(None, description="Of the whole job, what is used included.")


class Estimate(BaseModel):
    """What is left of a job and what it comes to; null while it has told nothing of it, and once it has ended."""

    seconds_left: Between | None = Field(None, description="From now on, of a job that runs.")
    device_minutes: Between | None = Field(None, description="Of the whole job, used ones included.")
    price: PriceView | None = Field(None, description="Null where no rate is set or the job takes no device.")


def estimate(job: Job, rate: Rate | None, now: float) -> Estimate:
    """The estimate of a job at the time `now`."""
    left = _left(job, now)
    devices = job.devices * job.machines
    whole = left.scaled(devices / 60, job.device_seconds / 60) if left else None
    price = None
    if rate is not None and devices:
        expected = whole.scaled(rate.price(60)) if whole else None
        price = PriceView(currency=rate.currency, used=rate.price(job.device_seconds), expected=expected)
    return Estimate(seconds_left=left if job.state == "running" else None, device_minutes=whole, price=price)


def _left(job: Job, now: float) -> Between | None:
    """What the job has told is left, less what has passed since then; nothing once that is overdue."""
    progress = job.progress or {}
    low, high = progress.get("eta_low_seconds"), progress.get("eta_high_seconds")
    if low is None or high is None or job.state in ENDED:
        return None
    passed = max(0.0, now - float(progress.get("time") or now)) if job.state == "running" else 0.0
    if passed > high:
        return None
    return Between(low=max(0.0, low - passed), high=high - passed)
