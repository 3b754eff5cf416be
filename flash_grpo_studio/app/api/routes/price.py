"""What a device-hour costs; administrators set it."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator, model_validator

from flash_grpo_studio.app.api.base import Strict, subject
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Administrator, Parts, Reader
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.jobs.change import tell
from flash_grpo_studio.app.store.rates import Rate, put_rate, read_rate

router = subject("price")


class RateView(BaseModel):
    """The studio's rate; null where none was set, and then no price is told."""

    device_hour_rate: float | None
    currency: str | None
    may_change: bool = Field(description="Whether you may set it.")


class RateAsk(Strict):
    """A rate to set."""

    device_hour_rate: float | None = Field(ge=0, le=1e9, description="Price of an hour of one device; null: none.")
    currency: str | None = Field(None, max_length=12, description="A label such as EUR; it converts nothing.")

    @field_validator("currency")
    @classmethod
    def _on_one_line(cls, value: str | None) -> str | None:
        if value is not None and not (value.isprintable() and value.strip()):
            raise ValueError("expected a few printable signs, such as EUR")
        return value.strip() if value is not None else None

    @model_validator(mode="after")
    def _labelled(self) -> RateAsk:
        if self.device_hour_rate is not None and self.currency is None:
            raise ValueError("currency: a rate needs a label of its currency, such as EUR")
        return self


def _view(studio: Studio, actor: Actor) -> RateView:
    with studio.store.reading() as session:
        rate = read_rate(session)
    return RateView(
        device_hour_rate=rate.per_device_hour if rate else None,
        currency=rate.currency if rate else None,
        may_change=actor.admin,
    )


@router.get("/price", response_model=RateView, summary="What a device-hour costs")
def get_rate(studio: Parts, actor: Reader) -> RateView:
    """The rate by which device-hours are told as a price."""
    return _view(studio, actor)


@router.patch("/price", response_model=RateView, summary="Set what a device-hour costs")
def set_rate(studio: Parts, actor: Administrator, asked: RateAsk) -> RateView:
    """Set the rate, or take it away with null. Prices of all jobs, past ones too, are told by the present rate."""
    number = asked.device_hour_rate
    rate = Rate(number, asked.currency) if number is not None and asked.currency is not None else None
    with studio.store.writing() as session:
        put_rate(session, rate)
        tell(session, None, "rate_set", actor.user_id, device_hour_rate=number, currency=asked.currency)
    return _view(studio, actor)
