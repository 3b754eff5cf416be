"""What a device-hour costs, as an administrator has set it for the whole studio."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy.orm import Session

from flash_grpo_studio.app.store.tables import Fact

RATE = "device_hour_rate"


@dataclass(frozen=True)
class Rate:
    """The price of a device-hour; `currency` is a label and converts nothing."""

    per_device_hour: float
    currency: str

    def price(self, device_seconds: float) -> float:
        """What so many seconds of one device cost."""
        return device_seconds / 3600 * self.per_device_hour


def read_rate(session: Session) -> Rate | None:
    """The rate, None where none was set."""
    fact = session.get(Fact, RATE)
    return Rate(**json.loads(fact.value)) if fact is not None else None


def put_rate(session: Session, rate: Rate | None) -> None:
    """Set the rate, or take it away."""
    fact = session.get(Fact, RATE)
    if rate is None:
        if fact is not None:
            session.delete(fact)
        return
    value = json.dumps({"per_device_hour": rate.per_device_hour, "currency": rate.currency})
    if fact is None:
        session.add(Fact(name=RATE, value=value))
    else:
        fact.value = value
