"""How fast the studio's pages and intake are with a full store: 5,000 jobs and 10 million metric points.

    python benchmarks/studio_speed.py [--database-url URL] [--jobs 5000] [--points 10000000] [--requests 200]

Fills the database (SQLite in a temporary folder unless a URL of an empty one is given), starts the real web app on it
and asks it over HTTP: lists in several orders, jobs with their charts, the longest run's charts. Then takes events in
through the worker's own path and reports events per second. Times are milliseconds of whole requests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import insert, text

from flash_grpo.config import build_config
from flash_grpo.events import parse_records
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.jobs.leases import claim
from flash_grpo_studio.app.settings import Settings, normal_database_url
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.intake import take_in
from flash_grpo_studio.app.store.migrate import upgrade
from flash_grpo_studio.app.store.tables import Attempt, Event, Job, Metric, MetricSeries, User, new_id
from flash_grpo_studio.app.workspace import Workspace

STATISTICS = ("mean", "std", "min", "max", "group_spread")
SERIES = [
    *(f"reward/{name}/{what}" for name in ("subject_size", "flicker") for what in STATISTICS),
    *("advantage/std", "grad_norm", "drift", "clip_fraction", "kl", "learning_rate", "loss", "peak_memory_mb"),
    *("seconds/rollout", "seconds/replay", "cost/rollout", "cost/replay", "branch/0/weight", "branch/1/weight", "nfe"),
]  # fmt: skip
LONG_RUNS, LONG_UPDATES = 10, 4000
STATES = ("succeeded",) * 7 + ("failed", "cancelled", "queued")
INTAKE_EVENTS = 60_000
INTAKE_BYTES = 1 << 20


def fill(store: Store, jobs: int, points: int) -> list[str]:
    """Write the jobs with their metrics and events; returns their ids, the long runs first."""
    choose = random.Random(0)
    with store.writing() as session:
        owner = User(name="local", role="admin")
        session.add(owner)
        session.flush()
    config = build_config("pocket").model_dump(mode="json")
    updates = _updates_per_job(jobs, points // len(SERIES))
    ids = [new_id() for _ in range(jobs)]
    for first in range(0, jobs, 500):
        with store.writing() as session:
            chosen = range(first, min(first + 500, jobs))
            rows = [
                _job(ids[index], owner.id, index, choose.choice(STATES), updates[index], config) for index in chosen
            ]
            session.execute(insert(Job), rows)
            names = [{"job_id": ids[i], "position": p, "name": name} for i in chosen for p, name in enumerate(SERIES)]
            session.execute(insert(MetricSeries), names)
            session.execute(insert(Attempt), [_attempt(ids[index]) for index in chosen])
            session.execute(insert(Event), [_evaluation(ids[i], n, updates[i]) for i in chosen for n in range(5)])
    noise = np.random.default_rng(0).random((max(updates), len(SERIES)))
    pending: list[dict[str, Any]] = []
    for index, count in enumerate(updates):
        for update in range(count):
            values = noise[update].tobytes()
            row = {"job_id": ids[index], "update": update + 1, "attempt": 1, "time": 0.0, "values": values}
            pending.append(row)
        if len(pending) > 20_000 or index == jobs - 1:
            with store.writing() as session:
                session.execute(insert(Metric), pending)
            pending = []
    if not store.sqlite:
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
    return ids


def _updates_per_job(jobs: int, rows: int) -> list[int]:
    long = [LONG_UPDATES] * min(LONG_RUNS, jobs)
    others = jobs - len(long)
    each = max(1, (rows - sum(long)) // max(others, 1))
    return [*long, *[each] * others]


def _job(id_: str, owner: str, index: int, state: str, updates: int, config: dict[str, Any]) -> dict[str, Any]:
    now = time.time() - index * 60
    return {
        "id": id_,
        "owner_id": owner,
        "kind": "alignment",
        "name": f"pocket run {index}",
        "state": state,
        "preset": "pocket",
        "spec": {"ask": {"kind": "alignment", "preset": "pocket"}, "config": config, "files": {}},
        "position": float(index),
        "folder": f"jobs/{id_}",
        "update": updates,
        "updates": updates,
        "progress": {"phase": "rollout", "update": updates, "updates": updates, "elapsed_seconds": 1.0},
        "created": now,
        "changed": now,
        "started": now,
    }


def _attempt(id_: str) -> dict[str, Any]:
    return {"job_id": id_, "number": 1, "worker_id": "w", "host": "h", "devices": ["cpu:0"], "outcome": "succeeded"}


def _evaluation(id_: str, number: int, updates: int) -> dict[str, Any]:
    rewards = {"subject_size": {"mean": 0.5, "ci95": [0.4, 0.6]}}
    data = {"update": updates, "split": "validation", "rewards": rewards}
    return {"job_id": id_, "seq": number, "attempt": 1, "type": "evaluation", "update": updates, "data": data}


@contextmanager
def web_app(settings: Settings) -> Iterator[httpx.Client]:
    """The real web app in its own process."""
    environment = {**os.environ, **settings.environment()}
    command = [sys.executable, "-m", "flash_grpo_studio.app.api"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{settings.port}/api/v1", timeout=60, trust_env=False
            ) as client:
                for _ in range(600):
                    try:
                        client.get("/health")
                        break
                    except httpx.TransportError:
                        time.sleep(0.05)
                yield client
        finally:
            process.send_signal(signal.SIGTERM)


def times(requests: int, ask: Callable[[int], None]) -> dict[str, float]:
    """Milliseconds of `requests` calls after three that warm up."""
    for number in range(3):
        ask(number)
    measured = []
    for number in range(requests):
        began = time.perf_counter()
        ask(number)
        measured.append(1000 * (time.perf_counter() - began))
    p50, p95 = np.percentile(measured, [50, 95])
    return {"p50": round(float(p50), 1), "p95": round(float(p95), 1), "most": round(max(measured), 1)}


def ask_pages(client: httpx.Client, ids: list[str], requests: int) -> dict[str, dict[str, float]]:
    """Times of what the pages ask for."""
    choose = random.Random(1)

    def get(path: str) -> Any:
        answer = client.get(path)
        answer.raise_for_status()
        return answer.json()

    def job_with_charts(id_: str) -> None:
        get(f"/jobs/{id_}")
        found = get(f"/jobs/{id_}/metrics?points=500")
        assert found, f"job {id_} has no metrics"

    orders = ("-created", "name", "-changed", "queue", "state")
    return {
        "list": times(requests, lambda number: get(f"/jobs?limit=50&sort={orders[number % len(orders)]}")),
        "list, filtered by state": times(requests, lambda number: get("/jobs?limit=50&state=failed")),
        "list, searched by text": times(requests, lambda number: get(f"/jobs?limit=50&text=run%20{number}")),
        "job with charts": times(requests, lambda number: job_with_charts(choose.choice(ids))),
        "long job with charts": times(requests, lambda number: job_with_charts(ids[number % LONG_RUNS])),
    }


def intake(store: Store, folder: Path) -> dict[str, float]:
    """Events per second from a log on disk into the store, in the worker's batches; a sixth of them are metrics."""
    lines = []
    for number in range(INTAKE_EVENTS):
        update = number // 6 + 1
        head = {"v": 1, "seq": number + 1, "attempt": 1, "time": 1.0, "update": update}
        if number % 6:
            body: dict[str, Any] = {"type": "progress", "phase": "rollout", "updates": 10_000, "elapsed_seconds": 1.0}
        else:
            stats = dict.fromkeys(STATISTICS, 0.5)
            body = {"type": "metrics", "rewards": {"a": stats, "b": stats, "c": stats}, "loss": 0.1, "drift": 1e-6}
            body |= {"seconds": {"rollout": 1.0, "replay": 2.0}, "branch": {"0": {"weight": 1.0, "reward": 0.5}}}
        lines.append(json.dumps({**head, **body}))
    log = folder / "events.jsonl"
    log.write_text("\n".join(lines) + "\n")
    with store.writing() as session:
        owner = session.query(User).first()
        assert owner is not None
        job_id = new_id()
        session.add(Job(**{**_job(job_id, owner.id, 0, "queued", 0, {}), "priority": 100}))
    worker = workers.register(store, "bench", 1, 1.0, "bench", [{"name": "cpu:0"}], {})
    found = claim(store, worker)
    assert found is not None and found.job_id == job_id
    began, offset = time.perf_counter(), 0
    with log.open("rb") as file:
        while chunk := file.read(INTAKE_BYTES):
            whole = chunk[: chunk.rfind(b"\n") + 1]
            file.seek(offset + len(whole))
            with store.writing() as session:
                assert take_in(
                    session, job_id, found.fence, parse_records(whole), (offset, offset + len(whole)), lambda _: []
                )
            offset += len(whole)
    seconds = time.perf_counter() - began
    with store.reading() as session:
        count = session.query(Metric).filter(Metric.job_id == job_id).count()
    assert count == INTAKE_EVENTS // 6, "not every metrics event has become a row"
    return {"events": INTAKE_EVENTS, "seconds": round(seconds, 2), "per_second": round(INTAKE_EVENTS / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = normal_database_url(arguments.database_url or f"sqlite:///{folder / 'studio.db'}")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        settings = Settings(folder / "workspace", url, "", port=port)
        Workspace(settings.workspace).prepare()
        store = Store(url)
        upgrade(store)
        began = time.perf_counter()
        ids = fill(store, arguments.jobs, arguments.points)
        with store.reading() as session:
            points = session.query(Metric).count() * len(SERIES)
        result: dict[str, Any] = {"database": store.engine.dialect.name, "jobs": len(ids), "points": points}
        result["filled_in_seconds"] = round(time.perf_counter() - began, 1)
        with web_app(settings) as client:
            result["milliseconds"] = ask_pages(client, ids, arguments.requests)
        result["intake"] = intake(store, folder)
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
