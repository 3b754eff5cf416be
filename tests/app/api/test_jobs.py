"""Jobs through the API: submitting, listing, acting on them, watching them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from flash_grpo_studio.app.jobs import attempts, workers
from flash_grpo_studio.app.jobs.change import move
from flash_grpo_studio.app.jobs.leases import claim
from flash_grpo_studio.app.jobs.states import STATES
from flash_grpo_studio.app.store.metrics import Point, put_points
from flash_grpo_studio.app.store.tables import Attempt, Checkpoint, Event, Job
from tests.app.web import Web, something_of_everything


def test_only_the_preset_is_needed(web: Web) -> None:
    answer = web.post("/jobs", {"preset": "micro"})
    job = answer.json()
    assert (answer.status_code, job["state"], job["kind"], job["queue_position"]) == (201, "queued", "alignment", 1)
    assert job["waiting_reason"] == "no worker is running; start one with: flash-grpo worker"
    assert web.get(f"/jobs/{job['id']}").json()["progress"]["updates"] == job["progress"]["updates"] > 0
    config = web.get(f"/jobs/{job['id']}/config").json()
    assert f"updates: {job['progress']['updates']}\n" in config["yaml"]
    assert web.get(f"/jobs/{job['id']}/spec").json()["ask"]["preset"] == "micro"
    plan = web.get(f"/jobs/{job['id']}/plan").json()
    assert plan["plan"]["memory"]["peak_gb"] > 0
    assert plan["command"] == "flash-grpo train --preset micro"


def test_one_key_makes_one_job(web: Web) -> None:
    body = {"preset": "micro", "idempotency_key": "click"}
    first, second = web.post("/jobs", body), web.post("/jobs", body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert web.get("/jobs").json()["total"] == 1


def test_pages_tell_every_job_once_while_others_come(web: Web) -> None:
    made = [web.submit(name=f"job {number % 3}", priority=number % 2) for number in range(9)]
    for sort in ("-created", "created", "name", "-name", "state", "queue", "-changed", "changed"):
        seen: list[str] = []
        cursor = None
        while True:
            answer = web.get("/jobs", params={"limit": 4, "sort": sort, **({"cursor": cursor} if cursor else {})})
            assert answer.status_code == 200, (sort, answer.text)
            page = answer.json()
            seen += [job["id"] for job in page["jobs"]]
            if sort == "-created" and len(seen) == 4:
                made.append(web.submit(name="meanwhile"))
            cursor = page["next"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) >= 9, sort
        assert page["total"] == len(made)
    queue = web.get("/jobs", params={"sort": "queue", "limit": 100}).json()["jobs"]
    assert [job["queue_position"] for job in queue] == list(range(1, len(made) + 1))
    assert [job["priority"] for job in queue] == sorted((job["priority"] for job in queue), reverse=True)


def test_filters(web: Web) -> None:
    ann, bob = web.user("ann", "admin"), web.user("bob")
    first = web.submit(ann, name="100% red_circle")
    second = web.submit(bob, name="blue", shared=True)
    web.post(f"/jobs/{second}/cancel", headers=bob)

    def ids(**params: Any) -> list[str]:
        answer = web.get("/jobs", params={"sort": "created", **params}, headers=ann)
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    assert ids() == [first, second]
    assert ids(state="cancelled") == ids(owner="bob") == ids(text="BLUE") == ids(text=second) == [second]
    assert ids(state=["cancelled", "queued"]) == [first, second]
    assert ids(text="100%") == ids(text="d_c") == ids(owner="me") == [first]
    assert ids(text="%") == [first]
    assert ids(kind="export") == ids(text="_circles") == ids(parent=first) == []
    assert web.get("/jobs", headers=ann).json()["states"] == {"queued": 1, "cancelled": 1}
    assert web.get("/jobs", params={"state": "nonsense"}, headers=ann).status_code == 422
    shown = web.get("/jobs", headers=bob).json()
    assert [job["id"] for job in shown["jobs"]] == [second]  # not the administrator's


def test_actions_and_what_they_are_refused_with(web: Web) -> None:
    job = web.submit()
    assert web.post(f"/jobs/{job}/pause").json()["state"] == "paused"
    refused = web.post(f"/jobs/{job}/pause")
    assert (refused.status_code, refused.json()["error"]["state"]) == (409, "paused")
    assert web.post(f"/jobs/{job}/resume").json()["state"] == "queued"
    assert web.post(f"/jobs/{job}/save").status_code == 409
    assert web.post(f"/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert web.post(f"/jobs/{job}/retry").status_code == 409
    clone = web.post(f"/jobs/{job}/clone", {"name": "twin", "overrides": {"updates": 3}})
    assert (clone.status_code, clone.json()["cloned_from"], clone.json()["progress"]["updates"]) == (201, job, 3)
    assert web.post(f"/jobs/{job}/clone", {"strange": 1}).status_code == 422
    assert web.call("DELETE", f"/jobs/{job}").json() == {"done": True}
    assert web.get(f"/jobs/{job}").status_code == 404


def test_the_actions_that_are_offered_are_those_that_work(web: Web) -> None:
    """For every state: each of the four changes of state is offered exactly where it is not refused."""
    job = web.submit()
    for state in STATES:
        for action in ("cancel", "pause", "resume", "retry"):
            with web.studio.store.writing() as session:
                session.get_one(Job, job).state = state
            offered = action in web.get(f"/jobs/{job}").json()["actions"]
            answer = web.post(f"/jobs/{job}/{action}")
            assert offered == (answer.status_code == 200), f"{action} of a job that is {state}: {answer.text}"


def test_edits_and_order(web: Web) -> None:
    first, second = web.submit(), web.submit()
    edited = web.call("PATCH", f"/jobs/{first}", json={"name": "new", "budget": 5, "overrides": {"updates": 5}}).json()
    assert (edited["name"], edited["budget"], edited["progress"]["updates"]) == ("new", 5, 5)
    assert web.call("PATCH", f"/jobs/{first}", json={"budget": None}).json()["budget"] is None
    for bad in ({"name": ""}, {"name": None}, {"priority": None}, {"budget": -1}, {"x": 1}, {"overrides": {"no": 1}}):
        assert web.call("PATCH", f"/jobs/{first}", json=bad).status_code == 422, bad
    assert web.get(f"/jobs/{first}").json()["name"] == "new"
    assert web.post(f"/jobs/{second}/reorder", {"before": first}).json()["queue_position"] == 1
    assert web.get(f"/jobs/{first}").json()["waiting_reason"].startswith("no worker")
    assert web.post(f"/jobs/{second}/reorder", {}).json()["queue_position"] == 2


def test_many_at_once_with_a_result_each(web: Web) -> None:
    ann = web.user("ann")
    web.user("boss", "admin")
    one, two = web.submit(ann), web.submit(ann)
    web.post(f"/jobs/{two}/cancel", headers=ann)
    asked = {"ids": [one, two, "0" * 16, one], "action": "cancel"}
    results = web.post("/jobs/bulk", asked, headers=ann).json()["results"]
    assert [(result["id"], result["ok"], result["state"]) for result in results] == [
        (one, True, "cancelled"),
        (two, False, "cancelled"),
        ("0" * 16, False, None),
    ]
    assert results[1]["error"]["code"] == "illegal_transition"
    deleted = web.post("/jobs/bulk", {"ids": [one, two], "action": "delete"}, headers=ann).json()["results"]
    assert all(result["ok"] for result in deleted)
    assert web.post("/jobs/bulk", {"ids": [], "action": "cancel"}, headers=ann).status_code == 422


def test_each_kind_checks_its_own_fields(small_web: Web) -> None:
    web = small_web
    parent = web.submit()
    bodies = [
        ({"kind": "evaluation", "job_id": parent}, "no checkpoint yet"),
        ({"kind": "preview", "job_id": parent, "prompts": ["a"]}, "no checkpoint yet"),
        ({"kind": "export", "job_id": parent}, "no checkpoint yet"),
        ({"kind": "preview", "job_id": parent}, "cannot be used"),
        ({"kind": "evaluation", "preset": "micro", "job_id": parent}, "cannot be used"),
    ]
    for body, said in bodies:
        answer = web.post("/jobs", body)
        assert answer.status_code == 422 and said in answer.text, answer.text
    with web.studio.store.writing() as session:
        session.add(Checkpoint(job_id=parent, update=4, path="x"))
    made = web.post("/jobs", {"kind": "export", "job_id": parent})
    assert (made.status_code, made.json()["parent_id"], made.json()["devices"]) == (201, parent, 0)
    assert web.post("/jobs", {"kind": "download", "repo": "owner/name"}).json()["kind"] == "download"
    assert web.get(f"/jobs/{made.json()['id']}/config").status_code == 409
    unknown = web.post("/jobs", {"kind": "evaluation", "job_id": "0" * 16})
    assert unknown.status_code == 404


def test_a_watched_job(web: Web) -> None:
    job = web.submit()
    worker = workers.register(web.studio.store, "here", 1, 1.0, "test", [{"name": "cpu:0"}], {"free": 1})
    claimed = claim(web.studio.store, worker)
    assert claimed is not None
    attempts.started(web.studio.store, claimed, 4711, 1.0)
    points = [
        Point(update, 1, 1.0, {"loss": -float(update), "reward/sharpness/mean": update / 1000})
        for update in range(1000)
    ]
    found = {"rewards": {"sharpness": {"mean": 0.5, "ci95": [0.4, 0.6]}}, "split": "validation", "videos": 8}
    with web.studio.store.writing() as session:
        put_points(session, job, points)
        row = session.get_one(Job, job)
        row.update = 999
        row.progress = {"phase": "rollout", "eta_seconds": 12.5, "cost": 3.0, "nfe": 2, "elapsed_seconds": 5, "time": 9}
        row.device_seconds = 90.0
        session.add(Event(job_id=job, type="evaluation", update=0, data={**found, "best": True}))
    detail = web.get(f"/jobs/{job}").json()
    assert (detail["state"], detail["device_minutes"], detail["progress"]["phase"]) == ("running", 1.5, "rollout")
    assert detail["attempts"][0]["devices"] == ["cpu:0"] and "process" not in detail["attempts"][0]
    assert detail["last_values"] == {"loss": -999.0, "reward/sharpness/mean": 0.999}
    curves = web.get(f"/jobs/{job}/metrics", params={"points": 50}).json()
    assert (curves["updates"], curves["last"], curves["names"]) == (1000, 999, ["loss", "reward/sharpness/mean"])
    assert all(len(curves["series"][name][part]) <= 50 for name in curves["names"] for part in ("value", "low", "high"))
    assert curves["evaluations"][0]["best"] is True
    assert curves["last_evaluation"] > 0
    later = web.get(f"/jobs/{job}/metrics", params={"after_evaluation": curves["last_evaluation"]}).json()
    assert (later["evaluations"], later["last_evaluation"]) == ([], curves["last_evaluation"])
    some = web.get(f"/jobs/{job}/metrics", params={"series": "reward/", "after": 990}).json()
    assert some["names"] == ["reward/sharpness/mean"]
    assert some["series"]["reward/sharpness/mean"]["update"] == list(range(991, 1000))
    assert web.get(f"/jobs/{job}/metrics", params={"series": "nothing"}).json()["series"] == {}
    leases = web.get("/leases").json()["leases"]
    assert [(lease["device"], lease["job_id"]) for lease in leases] == [("cpu:0", job)]
    assert web.get("/workers").json()["workers"][0]["jobs"] == 1
    assert web.post(f"/workers/{worker}/drain", {"on": True}).status_code == 200
    assert web.get("/workers").json()["workers"][0]["state"] == "draining"
    assert web.call("DELETE", f"/jobs/{job}").status_code == 409


def test_foreign_jobs_on_devices_are_not_named(small_web: Web) -> None:
    web = small_web
    ann, bob = web.user("ann"), web.user("bob")
    web.user("boss", "admin")
    web.submit(ann, name="secret plan")
    worker = workers.register(web.studio.store, "here", 1, 1.0, "test", [{"name": "cpu:0"}], {})
    assert claim(web.studio.store, worker)
    assert "secret plan" in web.get("/leases", headers=ann).text
    lease = web.get("/leases", headers=bob).json()["leases"][0]
    assert (lease["device"], lease["job_id"], lease["job_name"]) == ("cpu:0", None, None)


def test_events_by_page_and_type(web: Web) -> None:
    job = web.submit()
    with web.studio.store.writing() as session:
        session.add_all(Event(job_id=job, seq=n, type="warning", data={"message": f"<b>{n}</b>"}) for n in range(7))
    page = web.get(f"/jobs/{job}/events", params={"type": "warning", "order": "oldest", "limit": 5}).json()
    assert page["total"] == 7
    rest = web.get(
        f"/jobs/{job}/events",
        params={"type": "warning", "order": "oldest", "limit": 5, "cursor": page["next"]},
    ).json()
    assert [event["seq"] for event in page["events"] + rest["events"]] == list(range(7))
    assert rest["next"] is None
    assert web.get(f"/jobs/{job}/events").json()["events"][0]["seq"] == 6


def test_the_log_is_the_newest_attempts_end_without_secrets(small_web: Web) -> None:
    web = small_web
    job = web.submit()
    assert web.get(f"/jobs/{job}/log").json()["text"] == ""
    folder = web.studio.workspace.job(job)
    secrets = "token hf_abcdefghijklmnop\nredis://user:pass%40word@host/0\nAuthorization: Bearer abc.def-ghi\n"
    for number in (1, 2):
        with web.studio.store.writing() as session:
            session.add(Attempt(job_id=job, number=number, worker_id="w", host="here"))
        (folder / "attempts" / str(number)).mkdir(parents=True)
        text = f"attempt {number}\n" + "line\n" * 100 + secrets + "caf\u00e9 \x1b[31m\n"
        (folder / "attempts" / str(number) / "output.txt").write_text(text, encoding="utf-8")
    log = web.get(f"/jobs/{job}/log").json()
    assert (log["source"], log["truncated"]) == ("attempts/2/output.txt", False)
    assert log["text"].startswith("attempt 2") and "caf\u00e9" in log["text"]
    for secret in ("hf_abc", "pass%40word", "abc.def-ghi"):
        assert secret not in log["text"]
    assert web.get(f"/jobs/{job}/log", params={"source": log["sources"][0]}).json()["text"].startswith("attempt 1")
    short = web.get(f"/jobs/{job}/log", params={"tail": 100}).json()
    assert short["truncated"] and len(short["text"]) <= 100 and not short["text"].startswith("attempt")
    for source in ("../../../etc/passwd", "run/log.txt", "attempts/9/output.txt"):
        assert web.get(f"/jobs/{job}/log", params={"source": source}).status_code == 404


def test_checkpoints_of_all_alignments(web: Web) -> None:
    ann, bob = web.user("ann"), web.user("bob")
    things = something_of_everything(web, web.users["ann"])
    with web.studio.store.writing() as session:
        session.add(Checkpoint(job_id=things["job_id"], update=8, path="y", best=True))
    found = web.get("/checkpoints", headers=ann).json()
    assert [(row["update"], row["job_name"], row["best"]) for row in found["checkpoints"]] == [
        (8, "thing", True),
        (4, "thing", False),
    ]
    assert [row["update"] for row in web.get("/checkpoints?best=true", headers=ann).json()["checkpoints"]] == [8]
    assert web.get("/checkpoints", headers=bob).json() == {"total": 0, "next": None, "checkpoints": []}


def test_checkpoints_newest_first(web: Web) -> None:
    things = something_of_everything(web, _local(web))
    with web.studio.store.writing() as session:
        session.add(Checkpoint(job_id=things["job_id"], update=8, path="y", best=True))
    shown = web.get(f"/jobs/{things['job_id']}/checkpoints").json()["checkpoints"]
    assert [(entry["update"], entry["best"]) for entry in shown] == [(8, True), (4, False)]


def _local(web: Web) -> Any:
    web.studio.accounts.local_admin()
    return web.studio.accounts.named("local")


def test_lists_do_not_read_what_is_large(small_web: Web) -> None:
    web = small_web
    prompts = [f"a red circle number {number}" for number in range(20_000)]
    job = web.submit(prompts=prompts)
    start = time.perf_counter()
    listed = web.get("/jobs")
    assert time.perf_counter() - start < 1
    assert "number 19999" not in listed.text
    assert "number 19999" not in web.get(f"/jobs/{job}").text
    assert len(web.get(f"/jobs/{job}/spec").json()["ask"]["prompts"]) == 20_000


@pytest.mark.parametrize("state", ["running", "paused", "succeeded"])
def test_a_configuration_changes_only_where_it_may(small_web: Web, state: Any) -> None:
    web = small_web
    job = web.submit()
    if state == "paused":
        web.post(f"/jobs/{job}/pause")
    else:
        with web.studio.store.writing() as session:
            move(session, job, "starting")
            move(session, job, "running")
            if state == "succeeded":
                move(session, job, "succeeded")
    offered = "configure" in web.get(f"/jobs/{job}").json()["actions"]
    answer = web.call("PATCH", f"/jobs/{job}", json={"overrides": {"updates": 3}})
    assert (answer.status_code == 200) is offered is (state == "paused")
