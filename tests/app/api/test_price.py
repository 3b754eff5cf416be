"""A rate makes prices of device-hours; what is left of a job is a range that shrinks as time passes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from flash_grpo_studio.app.api.estimates import estimate
from flash_grpo_studio.app.store.metrics import Point, put_points
from flash_grpo_studio.app.store.rates import Rate
from flash_grpo_studio.app.store.tables import Job
from tests.app.web import Web

RATE = {"device_hour_rate": 2.5, "currency": "EUR"}


def test_administrators_set_the_rate_and_everybody_reads_it(web: Web) -> None:
    boss, ann = web.user("boss", "admin"), web.user("ann")
    assert web.get("/price", headers=ann).json() == {"device_hour_rate": None, "currency": None, "may_change": False}
    assert web.call("PATCH", "/price", json=RATE, headers=ann).status_code == 403
    assert web.call("PATCH", "/price", json=RATE, headers=boss).json() == {**RATE, "may_change": True}
    assert web.get("/price", headers=ann).json() == {**RATE, "may_change": False}
    (told,) = web.get("/audit", params={"type": "rate_set"}, headers=boss).json()["events"]
    assert told["data"] == RATE and told["user_id"] == web.users["boss"].id
    again = {"device_hour_rate": 0, "currency": " ¥ "}
    assert web.call("PATCH", "/price", json=again, headers=boss).json()["currency"] == "¥"
    none = web.call("PATCH", "/price", json={"device_hour_rate": None}, headers=boss).json()
    assert none == {"device_hour_rate": None, "currency": None, "may_change": True}


@pytest.mark.parametrize(
    "body",
    [
        '{"device_hour_rate": -0.01, "currency": "EUR"}',
        '{"device_hour_rate": 1e999, "currency": "EUR"}',
        '{"device_hour_rate": NaN, "currency": "EUR"}',
        '{"device_hour_rate": "much", "currency": "EUR"}',
        '{"device_hour_rate": 1}',
        '{"device_hour_rate": 1, "currency": " "}',
        '{"device_hour_rate": 1, "currency": "E\\nUR"}',
        '{"device_hour_rate": 1, "currency": "thirteen sign"}',
        '{"currency": "EUR"}',
        '{"device_hour_rate": 1, "currency": "EUR", "tax": 1}',
    ],
)
def test_a_rate_that_is_none_is_refused_and_nothing_changes(small_web: Web, body: str) -> None:
    small_web.call("PATCH", "/price", json=RATE)
    answer = small_web.call("PATCH", "/price", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert small_web.get("/price").json()["device_hour_rate"] == 2.5


def running(web: Web, **progress: Any) -> str:
    """A running job that has used two device-hours."""
    id_ = web.submit(devices=2)
    with web.studio.store.writing() as session:
        job = session.get_one(Job, id_)
        job.state, job.device_seconds, job.progress = "running", 7200.0, {"time": time.time(), **progress}
    return id_


def test_a_job_tells_what_is_left_and_what_it_costs(web: Web) -> None:
    id_ = running(web, eta_seconds=2000.0, eta_low_seconds=1800.0, eta_high_seconds=2400.0)
    found = web.get(f"/jobs/{id_}").json()["estimate"]
    assert found["price"] is None, "no rate, no price"
    assert found["seconds_left"] == pytest.approx({"low": 1800, "high": 2400}, abs=30)
    assert found["device_minutes"] == pytest.approx({"low": 120 + 2 * 30, "high": 120 + 2 * 40}, abs=1)
    web.call("PATCH", "/price", json=RATE)
    (listed,) = web.get("/jobs").json()["jobs"]
    price = listed["estimate"]["price"]
    assert (price["currency"], price["used"]) == ("EUR", pytest.approx(2 * 2.5))
    assert price["expected"] == pytest.approx({"low": 3 * 2.5, "high": (120 + 80) / 60 * 2.5}, abs=0.1)


def job(state: str, told: float, **more: Any) -> Job:
    """A job on one device with 100 to 200 s left at the time `told`."""
    progress = {"eta_low_seconds": 100.0, "eta_high_seconds": 200.0, "time": told}
    plain = {"kind": "alignment", "devices": 1, "machines": 1, "device_seconds": 3600.0, "progress": progress}
    return Job(**{**plain, "state": state, **more})


def test_time_that_passes_is_taken_off_and_what_is_overdue_is_not_told() -> None:
    rate = Rate(10.0, "EUR")
    later = estimate(job("running", 1000.0), rate, 1120.0).seconds_left
    assert later is not None and (later.low, later.high) == (0.0, 80.0)
    overdue = estimate(job("running", 1000.0), rate, 1201.0)
    assert overdue.seconds_left is None and overdue.device_minutes is None
    assert overdue.price is not None and (overdue.price.used, overdue.price.expected) == (10.0, None)


def test_a_job_at_rest_keeps_its_estimate_and_one_that_has_ended_has_none() -> None:
    rate = Rate(10.0, "EUR")
    paused = estimate(job("paused", 1000.0), rate, 9000.0)
    assert paused.seconds_left is None and paused.device_minutes is not None
    assert (paused.device_minutes.low, paused.device_minutes.high) == pytest.approx((60 + 100 / 60, 60 + 200 / 60))
    for state in ("succeeded", "failed", "cancelled"):
        ended = estimate(job(state, 1000.0), rate, 1001.0)
        assert ended.device_minutes is None and ended.price is not None and ended.price.expected is None
    assert estimate(job("queued", 0.0, progress={}), rate, 1.0).seconds_left is None
    assert estimate(job("running", 0.0, devices=0), rate, 1.0).price is None, "a download takes no device"


def test_a_plan_is_a_range_with_its_price_and_rests_on_an_earlier_run_where_there_is_one(web: Web) -> None:
    asked = {"preset": "micro", "own": True}
    assumed = web.post("/plan", asked).json()
    time_ = assumed["plan"]["time"]
    assert time_["speed"]["basis"] == "assumed" and assumed["price"] is None
    assert 0 < time_["low_seconds"] < time_["high_seconds"] and time_["total_seconds"] < time_["high_seconds"]
    web.call("PATCH", "/price", json=RATE)
    priced = web.post("/plan", {**asked, "devices": 2}).json()
    expected = [priced["plan"]["time"][key] * 2 / 3600 * 2.5 for key in ("low_seconds", "high_seconds")]
    assert [priced["price"][key] for key in ("low", "high")] == pytest.approx(expected)

    id_ = web.submit(name="the first")
    points = [Point(update, 1, 1.0, {"seconds/rollout": 5.0, "seconds/replay": 2.0 + update}) for update in range(1, 8)]
    with web.studio.store.writing() as session:
        put_points(session, id_, points)
        session.get_one(Job, id_).update = 7
    known = web.post("/plan", asked).json()["plan"]["time"]
    assert known["speed"]["basis"] == "earlier" and "'the first'" in known["speed"]["source"]
    assert sum(known["update_seconds"].values()) == pytest.approx(5 + 2 + 4.5, rel=0.01)
    wider = web.post("/plan", {**asked, "overrides": {"group_size": 12}}).json()["plan"]["time"]
    assert sum(wider["update_seconds"].values()) > 1.6 * sum(known["update_seconds"].values())
    for other in ({"preset": "micro"}, {**asked, "overrides": {"frames": 5}}, {**asked, "devices": 2}):
        assert web.post("/plan", other).json()["plan"]["time"]["speed"]["basis"] == "assumed", other
    of_job = web.get(f"/jobs/{id_}/plan").json()
    assert of_job["plan"]["time"]["speed"]["basis"] == "earlier" and of_job["price"]["currency"] == "EUR"
