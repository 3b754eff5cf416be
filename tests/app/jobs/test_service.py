"""What people do with jobs, and what they are refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs import attempts
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.jobs.change import IllegalTransition, NotFound, move
from flash_grpo_studio.app.jobs.prepare import PROMPT_KEYS
from flash_grpo_studio.app.jobs.states import STATES, TRANSITIONS, State
from flash_grpo_studio.app.store.tables import Job, PromptSet
from tests.studio import Parts


def test_a_submitted_job_waits_and_its_first_state_is_audited(parts: Parts) -> None:
    job = parts.submit(name="mine", priority=3)
    assert (job.state, job.name, job.priority, job.updates) == ("queued", "mine", 3, job.spec["config"]["updates"])
    assert parts.states(job.id) == ["queued"]
    assert parts.events(job.id, "state")[0].user_id == parts.ann.user_id


def test_one_idempotency_key_makes_one_job_also_for_clients_at_once(parts: Parts) -> None:
    found: list[str] = []

    def ask() -> None:
        found.append(parts.submit(idempotency_key="click").id)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert parts.submit(idempotency_key="other").id not in found  # another key is another job
    bob = parts.user("bob")
    assert parts.submit(bob, idempotency_key="click").id not in found  # and so is another user's


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"preset": "pockett"}, "did you mean 'pocket'"),
        ({"overrides": {"updatez": 3}}, "did you mean 'updates'"),
        ({"overrides": {"updates": 0}}, "updates"),
        ({"overrides": {"prompts": "/etc/passwd"}}, "built-in sets"),
        ({"overrides": {"heldout_prompts": "../../secret.txt"}}, "built-in sets"),
        ({"overrides": {"model": "/srv/models"}}, "built-in model"),
        ({"rewards": {"os:system": 1.0}}, "only an administrator"),
        ({"rewards": {"sharpnes": 1.0}}, "did you mean 'sharpness'"),
        ({"rewards": {"sharpness": 1.0}, "overrides": {"rewards": {"flicker": 1.0}}}, "twice"),
        ({"prompts": ["a"], "overrides": {"prompts": "pocket:train"}}, "twice"),
        ({"prompts": ["a"], "heldout": ["b"], "overrides": dict.fromkeys(PROMPT_KEYS[1:], "pocket:train")}, "twice"),
        ({"devices": 3}, "does not divide"),
        ({"machines": 2}, "machines 1"),
        ({"devices": 0}, "devices"),
        ({"budget": float("nan")}, "budget"),
        ({"prompts": []}, "prompts"),
        ({"prompts": ["a", " \n"]}, "more than white space"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_stored(
    parts: Parts, values: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        parts.submit(**values)
    with parts.store.reading() as session:
        assert session.query(Job).count() == 0


def test_an_administrator_may_name_files_and_modules_of_the_server(parts: Parts) -> None:
    root = parts.user("root", "admin")
    job = parts.submit(root, rewards={"my_module:my_reward": 1.0}, overrides={"prompts": "/data/prompts.txt"})
    assert job.spec["config"]["prompts"] == "/data/prompts.txt"
    limited = Actor(root.user_id, "root", "admin", frozenset({"read", "write"}))  # a token without the scope admin
    with pytest.raises(InputError, match="only an administrator"):
        parts.submit(limited, rewards={"my_module:my_reward": 1.0})


def test_only_an_administrator_may_name_a_server_for_a_reward_to_ask(parts: Parts) -> None:
    def asking(server: str) -> dict[str, Any]:
        options = {"vlm_judge": {"server": server, "model": "eyes"}}
        return {"rewards": {"vlm_judge": 1.0}, "overrides": {"reward_options": options}}

    inside = "http://169.254.169.254/v1"
    with pytest.raises(InputError, match="only an administrator may name one"):
        parts.submit(**asking(inside))
    parts.submit(**asking(""))
    job = parts.submit(parts.user("root", "admin"), **asking(inside))
    assert job.spec["config"]["reward_options"]["vlm_judge"]["server"] == inside


def test_own_prompts_travel_with_the_job(parts: Parts) -> None:
    job = parts.submit(prompts=["a red ball", "a blue ball"])
    assert job.spec["config"]["prompts"] == "prompts.jsonl"
    assert job.spec["files"]["prompts.jsonl"] == [{"prompt": "a red ball"}, {"prompt": "a blue ball"}]


def test_own_prompts_may_bring_held_out_ones(parts: Parts) -> None:
    heldout = [f"ball {number}" for number in range(8)]
    job = parts.submit(prompts=["a red ball"], heldout=heldout)
    texts = {name: [line["prompt"] for line in file] for name, file in job.spec["files"].items()}
    assert texts == {"prompts.jsonl": ["a red ball"], "validation.jsonl": heldout[:4], "heldout.jsonl": heldout[4:]}
    few = parts.submit(prompts=["a red ball"], heldout=heldout[:7])
    assert few.spec["config"]["heldout_prompts"] != "heldout.jsonl"
    with pytest.raises(InputError, match="heldout: expected only beside `prompts`"):
        parts.submit(heldout=heldout)


def test_a_prompt_set_brings_its_held_out_half(parts: Parts) -> None:
    lines = [{"id": f"p{number}", "text": f"prompt {number}"} for number in range(12)]
    with parts.store.writing() as session:
        chosen = PromptSet(owner_id=parts.ann.user_id, name="balls", prompts=lines[:4], heldout=lines[4:])
        session.add(chosen)
        session.flush()
    job = parts.submit(prompts=chosen.id)
    texts = {name: [line["prompt"] for line in file] for name, file in job.spec["files"].items()}
    assert [len(texts[name]) for name in ("prompts.jsonl", "validation.jsonl", "heldout.jsonl")] == [4, 4, 4]
    assert len({text for file in texts.values() for text in file}) == 12  # disjoint
    assert job.spec["config"]["heldout_prompts"] == "heldout.jsonl"
    with pytest.raises(NotFound):
        parts.submit(parts.user("bob"), prompts=chosen.id)


def test_the_way_of_a_job_through_pause_and_resume(parts: Parts) -> None:
    job = parts.submit()
    found = parts.claim(parts.worker())
    attempts.started(parts.store, found, 10, 1.0)
    assert parts.service.pause(parts.ann, job.id).state == "pausing"
    attempts.ended(parts.store, found, "paused", "saved")
    assert parts.service.resume(parts.ann, job.id).state == "queued"
    assert parts.service.pause(parts.ann, job.id).state == "paused"  # a queued one is held back at once
    assert parts.service.cancel(parts.ann, job.id).state == "cancelled"
    assert parts.states(job.id) == [
        "queued", "starting", "running", "pausing", "paused", "queued", "paused", "cancelled",
    ]  # fmt: skip


@pytest.mark.parametrize(("state", "again"), [("paused", "resume"), ("cancelled", "resume"), ("failed", "retry")])
def test_with_its_budget_spent_a_job_goes_on_only_with_a_larger_one(parts: Parts, state: State, again: str) -> None:
    job = parts.submit(budget=2.0)
    with parts.store.writing() as session:
        row = session.get_one(Job, job.id)
        row.state, row.device_seconds = state, 121.0
    action = getattr(parts.service, again)
    with pytest.raises(IllegalTransition, match="2.017 device-minutes of its budget of 2 are used: raise its budget"):
        action(parts.ann, job.id)
    assert parts.job(job.id).state == state
    parts.service.edit(parts.ann, job.id, {"budget": 2.01})
    with pytest.raises(IllegalTransition, match="of its budget of 2.01"):
        action(parts.ann, job.id)
    parts.service.edit(parts.ann, job.id, {"budget": 3.0})
    assert action(parts.ann, job.id).state == "queued"
    unlimited = parts.submit()
    with parts.store.writing() as session:
        row = session.get_one(Job, unlimited.id)
        row.state, row.device_seconds = state, 1e9
    assert action(parts.ann, unlimited.id).state == "queued", "a job without a budget has no end of it"


LEGAL = {
    "cancel": {"queued", "starting", "running", "pausing", "paused", "lost"},
    "pause": {"queued", "starting", "running"},
    "resume": {"paused", "cancelled"},
    "retry": {"failed", "lost"},
    "delete": {"queued", "paused", "cancelled", "succeeded", "failed", "lost"},
}


def test_every_action_in_every_state_is_done_or_refused_with_the_state(parts: Parts) -> None:
    for action, legal in LEGAL.items():
        for state in STATES:
            job = parts.submit()
            with parts.store.writing() as session:
                session.get_one(Job, job.id).state = state
            if state in legal:
                getattr(parts.service, action)(parts.ann, job.id)
                continue
            with pytest.raises(IllegalTransition, match=f"the job is {state}"):
                getattr(parts.service, action)(parts.ann, job.id)
            assert parts.job(job.id).state == state, f"{action} changed a job that is {state}"


def test_only_listed_transitions_happen(parts: Parts) -> None:
    job = parts.submit()
    for origin in STATES:
        for target in STATES:
            with parts.store.writing() as session:
                session.get_one(Job, job.id).state = origin
            try:
                with parts.store.writing() as session:
                    move(session, job.id, target)
                happened = True
            except IllegalTransition:
                happened = False
            assert happened == (target in TRANSITIONS[origin]), f"{origin} -> {target}"


def test_what_belongs_to_others_looks_missing_and_shared_things_may_only_be_looked_at(parts: Parts) -> None:
    job, bob = parts.submit(), parts.user("bob")
    for action in ("cancel", "pause", "resume", "retry", "delete"):
        with pytest.raises(NotFound, match=f"no job '{job.id}'"):
            getattr(parts.service, action)(bob, job.id)
    parts.service.edit(parts.ann, job.id, {"shared": True})
    assert parts.service.clone(bob, job.id, {})[0].owner_id == bob.user_id
    with pytest.raises(Forbidden, match="only its owner"):
        parts.service.cancel(bob, job.id)
    viewer = parts.user("eve", "viewer")
    with pytest.raises(Forbidden, match="may only look"):
        parts.submit(viewer)
    reader = Actor(parts.ann.user_id, "ann", "creator", frozenset({"read"}))
    with pytest.raises(Forbidden, match="scope write"):
        parts.service.cancel(reader, job.id)
    assert parts.service.cancel(parts.user("root", "admin"), job.id).state == "cancelled"


def test_a_clone_keeps_what_is_not_edited(parts: Parts) -> None:
    job = parts.submit(overrides={"updates": 7, "seed": 3}, prompts=["a"], priority=2)
    copy, new = parts.service.clone(parts.ann, job.id, {"overrides": {"seed": 4}, "name": "second"})
    assert new
    assert (copy.name, copy.cloned_from, copy.priority) == ("second", job.id, 2)
    assert [copy.spec["config"][key] for key in ("updates", "seed", "prompts")] == [7, 4, "prompts.jsonl"]
    with pytest.raises(InputError, match="did you mean"):
        parts.service.clone(parts.ann, job.id, {"overrides": {"sed": 4}})


def test_a_job_whose_prompts_or_rewards_were_edited_can_be_cloned(parts: Parts) -> None:
    job = parts.submit(prompts=["a", "b"], rewards={"colorfulness": 1.0}, overrides={"rewards.sharpness": 0.5})
    parts.service.edit(parts.ann, job.id, {"overrides": {"prompts": "pocket-single:train", "rewards.flicker": 2.0}})
    parts.service.edit(parts.ann, job.id, {"overrides": {"rewards.sharpness": 0.25}})
    config = parts.service.clone(parts.ann, job.id, {})[0].spec["config"]
    assert config == parts.job(job.id).spec["config"]
    assert config["rewards"] == {"colorfulness": 1.0, "sharpness": 0.25, "flicker": 2.0}


VALIDATION, HELDOUT = "validation_prompts", "heldout_prompts"


@pytest.mark.parametrize("edits", [[{VALIDATION}], [{HELDOUT}], [{VALIDATION, HELDOUT}], [{VALIDATION}, {HELDOUT}]])
def test_a_clone_of_a_job_with_own_prompts_has_its_edited_splits(parts: Parts, edits: list[set[str]]) -> None:
    job = parts.submit(prompts=["a red ball"], heldout=[f"ball {number}" for number in range(8)])
    for keys in edits:
        parts.service.edit(parts.ann, job.id, {"overrides": dict.fromkeys(keys, "pocket-single:train")})
    edited = set().union(*edits)
    before, after = parts.job(job.id).spec, parts.service.clone(parts.ann, job.id, {})[0].spec
    assert after["config"] == before["config"]
    assert [after["config"][key] for key in edited] == ["pocket-single:train"] * len(edited)
    used = {after["config"][key] for key in PROMPT_KEYS} & before["files"].keys()
    assert after["files"] == {name: before["files"][name] for name in used}, (
        "the files its configuration names, no others"
    )


def test_an_edit_must_still_divide_among_the_devices(parts: Parts) -> None:
    job = parts.submit(devices=2)
    with pytest.raises(InputError, match="does not divide among 2 devices"):
        parts.service.edit(parts.ann, job.id, {"overrides": {"prompts_per_update": 3}})


def test_a_configuration_may_be_edited_until_it_has_trained(parts: Parts) -> None:
    job = parts.submit()
    assert parts.service.edit(parts.ann, job.id, {"overrides": {"seed": 9}}).spec["config"]["seed"] == 9
    run = parts.workspace.run(job.id)
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("")
    parts.service.pause(parts.ann, job.id)
    assert parts.service.edit(parts.ann, job.id, {"overrides": {"updates": 99}}).updates == 99
    with pytest.raises(InputError, match="seed cannot change"):
        parts.service.edit(parts.ann, job.id, {"overrides": {"seed": 10}})
    parts.service.resume(parts.ann, job.id)
    parts.claim(parts.worker())
    with pytest.raises(IllegalTransition, match="pause it first"):
        parts.service.edit(parts.ann, job.id, {"overrides": {"updates": 100}})


def test_the_queue_can_be_reordered(parts: Parts) -> None:
    jobs = [parts.submit(name=name) for name in "abcd"]

    def queue() -> str:
        with parts.store.reading() as session:
            query = session.query(Job).filter(Job.state == "queued").order_by(Job.priority.desc(), Job.position)
            return "".join(job.name for job in query)

    parts.service.reorder(parts.ann, jobs[3].id, jobs[0].id)
    assert queue() == "dabc"
    parts.service.reorder(parts.ann, jobs[0].id, jobs[2].id)
    assert queue() == "dbac"
    parts.service.reorder(parts.ann, jobs[3].id, None)
    assert queue() == "bacd"
    for _ in range(60):  # between two neighbours: halving their distance must not run out of numbers
        parts.service.reorder(parts.ann, jobs[0].id, jobs[2].id)
        assert queue() == "bacd"
        parts.service.reorder(parts.ann, jobs[1].id, jobs[2].id)
        assert queue() == "abcd"


def test_deleting_removes_row_and_files_and_leaves_a_trace(parts: Parts) -> None:
    job = parts.submit()
    folder = parts.workspace.job(job.id)
    folder.mkdir(parents=True)
    (folder / "big.bin").write_bytes(b"x")
    parts.service.delete(parts.ann, job.id)
    assert not folder.exists()
    assert list((parts.workspace.folder / "trash").iterdir()) == []
    with parts.store.reading() as session:
        assert session.get(Job, job.id) is None
        row = session.execute(text("SELECT data FROM events WHERE type = 'deleted'")).scalar()
    assert job.id in str(row)
    with pytest.raises(NotFound):
        parts.service.delete(parts.ann, job.id)


def test_a_job_whose_run_folder_was_removed_is_not_resumed_as_if_nothing_happened(parts: Parts) -> None:
    job = parts.submit()
    with parts.store.writing() as session:
        row = session.get_one(Job, job.id)
        row.state, row.update = "paused", 12
    with pytest.raises(IllegalTransition, match="run folder was removed"):
        parts.service.resume(parts.ann, job.id)
