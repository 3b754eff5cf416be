"""Sides and comparisons as clients see them: whose they are, what is missing, and what cannot be used."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from flash_grpo_studio.app.store.tables import Checkpoint, Job
from tests.app.web import Web
from tests.sides import prompts, put_preview, put_run, put_videos

HTML = '<img src=x onerror=alert(1)> \u202e & "quotes" {template}'


def owner_id(web: Web) -> str:
    web.studio.accounts.local_admin()
    return web.studio.accounts.named("local").id


def scores(update: int, place: int) -> dict[str, float]:
    return {"subject_size": 0.5 + update * place, "flicker": 0.5 - update * place}


def filled(web: Web, owner: str, texts: list[str], **more: Any) -> str:
    """A run with a video of each prompt before and after, and their files."""
    run = put_run(web.studio.store, owner, config={"rewards": {"subject_size": 1.0}}, **more)
    put_videos(web.studio.store, owner, run, texts, scores=scores)
    for update in (0, 4):
        folder = web.studio.workspace.folder / f"jobs/{run}/run/videos/{update:06d}"
        folder.mkdir(parents=True)
        for place in range(len(texts)):
            (folder / f"p{place:05d}-0.mp4").write_bytes(bytes(100))
    return run


def compare(web: Web, run: str, headers: dict[str, str] | None = None, path: str = "", **more: Any) -> Any:
    params = {"before": f"{run}@0", "after": f"{run}@4", **more}
    return web.get(f"/comparison{path}", params=params, headers=headers)


def test_a_run_compared_with_its_base(web: Web) -> None:
    run = filled(web, owner_id(web), prompts(3))
    found = compare(web, run).json()
    assert (found["total"], found["same"], found["differences"], found["reward"]) == (3, True, [], "subject_size")
    assert [(one["name"], one["optimised"], one["gain"]) for one in found["rewards"]] == [
        ("subject_size", True, 4.0),
        ("flicker", False, -4.0),
    ]
    assert [pair["gain"] for pair in found["pairs"]] == [8.0, 4.0, 0.0]
    assert [pair["gain"] for pair in compare(web, run, sort="gain").json()["pairs"]] == [0.0, 4.0, 8.0]
    assert [pair["gain"] for pair in compare(web, run, reward="flicker").json()["pairs"]] == [0.0, -4.0, -8.0]
    pair = found["pairs"][0]
    assert pair["scores"]["subject_size"] == {"before": 0.5, "after": 8.5, "difference": 8.0}
    assert (pair["fps"], pair["frames"], pair["missing"], pair["differences"]) == (8.0, 9, [], [])
    assert (pair["before"]["update"], pair["after"]["update"], pair["after"]["noise"]) == (0, 4, "2")
    assert web.client.get(pair["after"]["url"]).content == bytes(100)
    assert compare(web, run, path="/pair", key=pair["key"]).json() == {**pair, "place": 0}
    sides = found["before"], found["after"]
    assert [(side["label"], side["best"], side["latest"], side["videos"]) for side in sides] == [
        ("base model", False, False, 3),
        ("update 4", True, True, 3),
    ]


def test_pages_of_pairs(small_web: Web) -> None:
    run = filled(small_web, owner_id(small_web), prompts(7))
    seen = [
        pair["prompt"]
        for offset in range(0, 9, 3)
        for pair in compare(small_web, run, sort="prompt", limit=3, offset=offset).json()["pairs"]
    ]
    assert seen == prompts(7)
    found = compare(small_web, run, search="00003").json()
    assert (found["total"], [pair["prompt"] for pair in found["pairs"]]) == (1, [prompts(7)[3]])


def test_sides_of_a_run_and_of_all(web: Web) -> None:
    owner = owner_id(web)
    run = filled(web, owner, prompts(1), name="first")
    put_run(web.studio.store, owner, name="nothing to see yet")
    preview = put_preview(web.studio.store, owner, run)
    put_videos(web.studio.store, owner, preview, ["weak"], [4], strength=0.5)
    listed = web.get("/sides", params={"job_id": run}).json()["sides"]
    assert [(side["side"], side["strength"], side["videos"], side["label"]) for side in listed] == [
        (f"{run}@0", 1.0, 1, "base model"),
        (f"{run}@4", 1.0, 1, "update 4"),
        (f"{run}@4*0.5", 0.5, 1, "update 4 at strength 0.5"),
    ]
    second = filled(web, owner, prompts(1), name="second")
    everything = web.get("/sides").json()["sides"]
    assert [side["side"] for side in everything] == [f"{second}@0", f"{second}@4", f"{run}@0", f"{run}@4"]
    assert [side["job_name"] for side in everything] == ["second", "second", "first", "first"]


def test_videos_that_are_gone_or_cut_off_are_told(web: Web) -> None:
    run = filled(web, owner_id(web), prompts(3))
    folder = web.studio.workspace.folder / f"jobs/{run}/run/videos"
    (folder / "000000" / "p00000-0.mp4").unlink()
    (folder / "000004" / "p00001-0.mp4").write_bytes(bytes(99))
    found = compare(web, run, sort="prompt").json()["pairs"]
    assert [pair["missing"] for pair in found] == [["before"], ["after"], []]
    assert found[0]["scores"]["subject_size"]["difference"] == 0.0  # what was measured stays true
    assert web.client.get(found[0]["before"]["url"]).status_code == 404


def test_a_checkpoint_that_was_pruned_still_has_its_videos(web: Web) -> None:
    run = filled(web, owner_id(web), prompts(2))
    assert compare(web, run).json()["after"]["checkpoint"] is True
    with web.studio.store.writing() as session:
        session.execute(delete(Checkpoint).where(Checkpoint.job_id == run))
    found = compare(web, run).json()
    assert (found["after"]["checkpoint"], found["after"]["best"], found["total"]) == (False, False, 2)
    listed = web.get("/sides", params={"job_id": run}).json()["sides"]
    assert [side["checkpoint"] for side in listed] == [False, False]


def test_prompts_are_text_whatever_they_hold(small_web: Web) -> None:
    run = filled(small_web, owner_id(small_web), [HTML, "x" * 4000])
    answer = compare(small_web, run, search="ONERROR")
    assert answer.headers["content-type"] == "application/json"
    assert [pair["prompt"] for pair in answer.json()["pairs"]] == [HTML]
    key = answer.json()["pairs"][0]["key"]
    assert key.replace("-", "").isalnum()
    assert compare(small_web, run, path="/pair", key=key).json()["prompt"] == HTML


def test_what_cannot_be_used_is_one_sentence_with_the_choices(web: Web) -> None:
    run = filled(web, owner_id(web), prompts(1))
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"reward": "sharpnes"}, "subject_size"),
        ({"sort": "zzz"}, "newest"),
        ({"before": "nonsense"}, "expected a side"),
        ({"after": f"{run}@0*0.5"}, "no strength"),
        ({"after": f"{run}@4*9"}, "0 to 4"),
    )
    for more, sentence in wrong:
        answer = compare(web, run, **more)
        assert answer.status_code == 422 and sentence in answer.json()["error"]["message"], answer.text
    assert compare(web, run, limit=0).status_code == 422
    assert compare(web, run, path="/pair", key="none").status_code == 404
    preview = put_preview(web.studio.store, owner_id(web), run)
    answer = compare(web, run, after=f"{preview}@4")
    assert answer.status_code == 422 and "kind preview" in answer.json()["error"]["message"]
    assert compare(web, run, after=f"{run}@2").json()["total"] == 0  # an update without videos has no pairs


def test_foreign_runs_look_like_missing_ones(web: Web) -> None:
    ann, bob = web.user("ann"), web.user("bob", "viewer")
    web.user("boss", "admin")
    run = filled(web, web.users["ann"].id, prompts(2))
    preview = put_preview(web.studio.store, web.users["ann"].id, run)
    put_videos(web.studio.store, web.users["ann"].id, preview, ["ann's own"])
    requests: list[tuple[str, dict[str, str]]] = [
        ("/comparison", {"before": "RUN@0", "after": "RUN@4"}),
        ("/comparison/pair", {"before": "RUN@0", "after": "RUN@4", "key": "k"}),
        ("/sides", {"job_id": "RUN"}),
        ("/votes/results", {"before": "RUN@0", "after": "RUN@4"}),
        ("/votes.csv", {"before": "RUN@0", "after": "RUN@4"}),
    ]
    for path, params in requests:
        answers = [
            web.get(path, params={key: text.replace("RUN", id_) for key, text in params.items()}, headers=bob)
            for id_ in (run, "0123456789abcdef")
        ]
        assert [answer.status_code for answer in answers] == [404, 404], path
        assert answers[0].text.replace(run, "ID") == answers[1].text.replace("0123456789abcdef", "ID")
    assert web.get("/sides", headers=bob).json() == {"sides": []}
    assert compare(web, run, ann).json()["total"] == 3
    with web.studio.store.writing() as session:
        session.get_one(Job, run).shared = True
    assert compare(web, run, bob).json()["total"] == 2  # of a shared run, previews that are not shared stay private
    assert [side["videos"] for side in web.get("/sides", headers=bob).json()["sides"]] == [2, 2]


def test_ten_thousand_pairs_stay_fluid(small_web: Web) -> None:
    web, texts = small_web, prompts(10_000)
    owner = owner_id(web)
    run = put_run(web.studio.store, owner)
    put_videos(web.studio.store, owner, run, texts, scores=scores)
    sorts = ("-gain", "gain", "prompt", "newest")
    for sort in sorts:
        assert compare(web, run, sort=sort).json()["total"] == 10_000
    took = []
    for turn in range(20):
        begun = time.process_time()  # other work on the machine does not count
        search = "" if turn % 2 else "number 0"
        answer = compare(web, run, sort=sorts[turn % 4], offset=100 * turn, search=search)
        took.append(time.process_time() - begun)
        assert len(answer.json()["pairs"]) == 50
    median = sorted(took)[10]
    print(f"pages of 10,000 pairs: median {median * 1000:.0f} ms, slowest {max(took) * 1000:.0f} ms")
    assert median < 0.15


def test_a_store_where_files_lead_outside_tells_nothing_of_them(small_web: Web, tmp_path: Path) -> None:
    web, owner = small_web, owner_id(small_web)
    (tmp_path / "outside.mp4").write_bytes(bytes(100))
    run = put_run(web.studio.store, owner)
    put_videos(web.studio.store, owner, run, ["a ball"], [0], path="../outside.mp4")
    put_videos(web.studio.store, owner, run, ["a ball"], [4], path="missing.mp4")
    assert compare(web, run).json()["pairs"][0]["missing"] == ["before", "after"]
