"""Prompt sets and reward profiles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.web import Web

TEXT = "a red circle\na blue square\n\na red circle\n" + "word " * 250


def test_prompts_are_tried_out_before_they_are_kept(small_web: Web) -> None:
    web = small_web
    parsed = web.post("/prompt-sets/parse", {"text": TEXT}).json()
    report = parsed["report"]
    assert (report["count"], report["duplicates"], report["longest_words"]) == (4, 1, 250)
    assert report["long"] == [{"id": "prompt-000003", "words": 250}]
    assert "repeats 1 of its 4 prompts" in report["warning"]
    fewer = web.post("/prompt-sets/parse", {"text": TEXT, "remove_duplicates": True}).json()
    assert [item["text"][:12] for item in fewer["prompts"]] == ["a red circle", "a blue squar", "word word wo"]
    assert web.get("/prompt-sets").json()["total"] == 0


def test_held_out_prompts_are_never_trained_on(small_web: Web) -> None:
    web = small_web
    asked = {"prompts": [f"prompt {number % 10}" for number in range(40)], "heldout_share": 0.3, "seed": 5}
    parsed = web.post("/prompt-sets/parse", asked).json()
    training, heldout = ({item["text"] for item in parsed[key]} for key in ("prompts", "heldout"))
    assert len(heldout) == 3 and not training & heldout and len(parsed["prompts"]) + len(parsed["heldout"]) == 40
    assert web.post("/prompt-sets/parse", asked).json() == parsed
    one = web.post("/prompt-sets/parse", {"prompts": ["only"], "heldout_share": 0.5}).json()
    assert (len(one["prompts"]), len(one["heldout"])) == (1, 0)


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("p.txt", b"eins\r\nzwei\r\n", ["eins", "zwei"]),
        ("p.csv", b'id,prompt\na,"one, two"\nb,three\n', ["one, two", "three"]),
        ("p.jsonl", b'{"prompt": "one"}\n{"text": "two", "id": "z"}\n', ["one", "two"]),
    ],
)
def test_uploaded_prompt_files(small_web: Web, name: str, content: bytes, texts: list[str]) -> None:
    web = small_web
    file_id = web.call("POST", "/uploads", files={"file": (name, content)}).json()["id"]
    made = web.post("/prompt-sets", {"name": "mine", "file_id": file_id})
    assert made.status_code == 201, made.text
    assert [item["text"] for item in made.json()["prompts"]] == texts
    job = web.post("/jobs", {"preset": "micro", "prompts": made.json()["id"]})
    assert job.status_code == 201, job.text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.csv", b"a,b\n1,2\n", "expected a column named prompt"),
        ("p.jsonl", b"{}\n", "expected an object"),
        ("p.jsonl", b'{"prompt": "a\\u0000b"}\n', "zero byte"),
        ("p.jsonl", b'{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "X"}\n', "each id once"),
    ],
)
def test_uploaded_files_that_hold_no_prompts(small_web: Web, name: str, content: bytes, said: str) -> None:
    web = small_web
    file_id = web.call("POST", "/uploads", files={"file": (name, content)}).json()["id"]
    answer = web.post("/prompt-sets", {"name": "mine", "file_id": file_id})
    assert answer.status_code == 422 and said in answer.text
    assert str(web.studio.workspace.folder) not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompts": []},
        {"prompts": [""]},
        {"prompts": ["a"], "text": "b"},
        {"prompts": [{"id": "../x", "text": "a"}]},
        {"prompts": [{"id": "a", "text": "a"}, {"id": "A", "text": "b"}]},
        {"text": "\n \n"},
        {"text": "x" * 5000},
        {"prompts": ["x" * 5000]},
        {"prompts": ["a"], "heldout_share": 0.9},
        {"file_id": "nonsense"},
    ],
)
def test_prompts_that_cannot_be_kept(lasting_web: Web, body: dict[str, Any]) -> None:
    assert lasting_web.post("/prompt-sets", {"name": "x", **body}).status_code == 422


def test_a_prompt_set_from_first_to_last(web: Web) -> None:
    ann, bob = web.user("ann"), web.user("bob")
    web.user("boss", "admin")
    made = web.post("/prompt-sets", {"name": "set", "prompts": ["a", {"id": "mine", "text": "b"}]}, headers=ann).json()
    path = f"/prompt-sets/{made['id']}"
    assert (made["count"], made["prompts"][1]["id"]) == (2, "mine")
    assert web.post("/prompt-sets", {"name": "set", "text": "c"}, headers=ann).status_code == 409
    assert web.post("/prompt-sets", {"name": "set", "text": "c"}, headers=bob).status_code == 201
    assert web.get("/prompt-sets", headers=bob).json()["total"] == 1
    edited = web.call("PATCH", path, json={"shared": True, "heldout": ["x"], "name": "other"}, headers=ann).json()
    assert (edited["name"], edited["heldout_count"], edited["count"]) == ("other", 1, 2)
    assert web.call("PATCH", path, json={"heldout": []}, headers=ann).json()["heldout_count"] == 0
    assert web.call("PATCH", path, json={"prompts": []}, headers=ann).status_code == 422
    brief = web.get("/prompt-sets", headers=bob).json()["prompt_sets"]
    assert [(entry["name"], entry["mine"], entry["count"]) for entry in brief] == [
        ("other", False, 2),
        ("set", True, 1),
    ]
    assert web.get(path, headers=bob).status_code == 200
    assert web.call("PATCH", path, json={"name": "x"}, headers=bob).status_code == 403
    assert web.call("DELETE", path, headers=ann).status_code == 200
    assert web.get(path, headers=ann).status_code == 404


def test_two_people_who_edit_a_prompt_set_do_not_overwrite_each_other(web: Web) -> None:
    made = web.post("/prompt-sets", {"name": "ours", "prompts": ["a red circle"]}).json()
    path, seen = f"/prompt-sets/{made['id']}", made["changed"]
    first = web.call("PATCH", path, json={"prompts": ["mine"], "unless_changed_since": seen})
    assert first.status_code == 200, first.text
    second = web.call("PATCH", path, json={"prompts": ["theirs"], "unless_changed_since": seen})
    assert (second.status_code, second.json()["error"]["code"]) == (409, "changed_meanwhile")
    assert [prompt["text"] for prompt in web.get(path).json()["prompts"]] == ["mine"]
    assert web.call("PATCH", path, json={"prompts": ["theirs"]}).status_code == 200  # on purpose


def test_reward_profiles(web: Web) -> None:
    ann, boss = web.user("ann"), web.user("boss", "admin")
    made = web.post("/reward-profiles", {"name": "p", "rewards": {"sharpness": 1, "flicker": 0}}, headers=ann).json()
    path = f"/reward-profiles/{made['id']}"
    assert web.post("/reward-profiles", {"name": "p", "rewards": {"sharpness": 1}}, headers=ann).status_code == 409
    for bad in (
        {"rewards": {"sharpnes": 1}},
        {"rewards": {}},
        {"reward_options": {"hpsv3": {}}},
        {"rewards": {"a:b": 1}},
    ):
        assert web.call("PATCH", path, json=bad, headers=ann).status_code == 422, bad
    assert web.get(path, headers=ann).json()["rewards"] == {"sharpness": 1.0, "flicker": 0.0}
    own_code = {"name": "code", "rewards": {"my_module:reward": 1}}
    assert web.post("/reward-profiles", own_code, headers=ann).status_code == 422
    assert web.post("/reward-profiles", own_code, headers=boss).status_code == 201
    assert web.call("PATCH", path, json={"name": "q", "shared": True}, headers=ann).json()["name"] == "q"
    assert web.get("/reward-profiles", headers=ann).json()["total"] == 1
    assert web.call("DELETE", path, headers=ann).status_code == 200
