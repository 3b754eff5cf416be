"""Catalogues, plans and validation."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from flash_grpo.config import RunConfig, build_config, parse_assignments
from tests.app.web import Web


def test_catalogues_hold_what_the_command_line_lists(small_web: Web) -> None:
    presets = small_web.get("/presets").json()
    assert {"pocket", "micro"} <= {preset["name"] for preset in presets}
    assert all(preset["whole"].keys() == RunConfig.model_fields.keys() for preset in presets)
    rewards = {card["name"]: card for card in small_web.get("/rewards").json()}
    assert rewards["subject_size"]["options"]["low"]["default"] == 0.12
    assert {"pocket"} <= {card["name"] for card in small_web.get("/models").json()}
    assert small_web.get("/schema").json()["properties"]["updates"]["group"] == "run"
    assert "H100" in str(small_web.get("/choices").json()["gpus"])
    assert small_web.get("/base-models").json()["base_models"][0]["built_in"] is True
    assert len(small_web.get("/built-in-prompts", params={"name": "starter:train"}).json()["prompts"]) > 20
    assert small_web.get("/built-in-prompts", params={"name": "/etc/passwd"}).status_code == 422


def test_built_in_prompts_by_category(small_web: Web) -> None:
    sets = {entry["name"]: entry for entry in small_web.get("/choices").json()["built_in_prompts"]}
    assert sets["pocket"]["categories"] == [] and sets["pocket"]["train"] == 4000
    food = next(entry for entry in sets["studio"]["categories"] if entry["name"] == "food")
    shown = small_web.get("/built-in-prompts", params={"name": "studio:train:food+text", "limit": 500}).json()
    assert {prompt["category"] for prompt in shown["prompts"]} == {"food", "text"}
    assert sum(prompt["category"] == "food" for prompt in shown["prompts"]) == food["train"]
    (pocket,) = small_web.get("/built-in-prompts", params={"name": "pocket:train", "limit": 1}).json()["prompts"]
    assert pocket["category"] is None
    assert small_web.get("/built-in-prompts", params={"name": "studio:train:peple"}).status_code == 422


def test_a_job_may_name_categories_and_a_wrong_one_is_told_beside_its_field(web: Web) -> None:
    web.user("boss", "admin")
    for headers in (web.user("ann"), web.token("boss", ["read", "write", "admin"])):
        chosen = {"prompts": "studio:train:food", "heldout_prompts": "studio:heldout:food"}
        id_ = web.submit(headers, overrides=chosen)
        assert web.get(f"/jobs/{id_}/config", headers=headers).json()["config"]["prompts"] == "studio:train:food"
        wrong = {"preset": "micro", "overrides": {"prompts": "studio:train:fod"}}
        (problem,) = web.post("/validate", wrong, headers=headers).json()["problems"]
        assert problem["field"] == "prompts" and "did you mean 'food'" in problem["message"]


def test_a_plan_with_its_command_and_configuration(small_web: Web) -> None:
    asked = {"preset": "wan2.1-14b", "gpu": "H100", "devices": 8, "overrides": {"updates": 7, "learning_rate": 1e-5}}
    plan = small_web.post("/plan", asked).json()
    assert plan["plan"]["memory"]["peak_gb"] > 20 and plan["plan"]["time"]
    words = shlex.split(plan["command"])
    assert words[:4] == ["flash-grpo", "train", "--preset", "wan2.1-14b"]
    assignments = [word for word in words[4:] if word != "--set"]
    assert build_config("wan2.1-14b", parse_assignments(assignments)).model_dump(mode="json") == plan["config"]
    small = small_web.post("/plan", {**asked, "memory_gb": 24}).json()
    assert small["plan"]["memory"]["fits"] is False
    assert small["advice"] != plan["advice"]


def test_own_prompts_are_planned(small_web: Web) -> None:
    plan = small_web.post("/plan", {"preset": "micro", "prompts": ["a red circle"] * 50})
    assert plan.status_code == 200, plan.text
    assert "not found" not in str(plan.json()["plan"])


def test_configuration_files_are_read_as_the_command_line_reads_them(small_web: Web) -> None:
    yaml_text = small_web.post("/plan", {"preset": "micro", "overrides": {"updates": 3}}).json()["yaml"]
    found = small_web.post("/configurations/read", {"text": yaml_text}).json()
    assert found == {"ask": None, "config": build_config("micro", {"updates": 3}).model_dump(mode="json")}
    partly = small_web.post("/configurations/read", {"text": "updates: 7\nnope: 1\n"}).json()["config"]
    assert partly == {**RunConfig().model_dump(mode="json"), "updates": 7, "nope": 1}
    saved = {"preset": "pocket", "prompts": ["<b>a</b>"]}
    assert small_web.post("/configurations/read", {"text": json.dumps(saved)}).json()["ask"] == saved


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mapping"),
        ("- 1", "mapping"),
        ("a: [", "neither YAML nor JSON"),
        ("\x00\x01", "signs|neither|zero"),
        ("a: &a [1]\nb: *a", "references"),
        ("a: .nan", "not finite"),
        ("a: !!binary aGk=", "kind of value"),
        ("a: !!python/object:os.system x", "neither YAML nor JSON"),
        ("1: 2\n? [3]\n: 4", "kind of value|neither"),
        ("[" * 5000, "neither YAML nor JSON"),
        ("a: " + "x" * 600_000, "500000"),
    ],
)
def test_files_that_are_no_configuration(small_web: Web, text: str, said: str) -> None:
    answer = small_web.post("/configurations/read", {"text": text})
    assert answer.status_code == 422, answer.text
    assert re.search(said, answer.json()["error"]["message"])


@pytest.mark.parametrize(
    "asked",
    [
        {"preset": "pocket", "gpu": "no such"},
        {"preset": "pocket", "memory_gb": 0},
        {"preset": "pocket", "tflops": 1e9},
        {"preset": "pocket", "overrides": {"prompts_per_update": 2**40}},
        {"preset": "pocket", "overrides": {"videos_saved": 2**40}},
        {"preset": "pocket", "overrides": {"model": "/no/such/folder"}},
        {"preset": "pocket", "devices": 3},
    ],
)
def test_plans_that_cannot_be(small_web: Web, asked: dict[str, Any]) -> None:
    answer = small_web.post("/plan", asked)
    assert answer.status_code == 422, answer.text


def test_a_plan_reads_no_files_of_the_server_for_others(small_web: Web) -> None:
    small_web.user("boss", "admin")
    ann = small_web.user("ann")
    for overrides in ({"prompts": "/etc/passwd.txt"}, {"model": "/etc"}, {"rewards": {"os:getcwd": 1}}):
        for path in ("/plan", "/validate", "/jobs"):
            answer = small_web.post(path, {"preset": "pocket", "overrides": overrides}, headers=ann)
            assert answer.status_code == 422 or answer.json()["valid"] is False, (path, overrides)
            assert "does not exist" not in answer.text


def test_every_field_that_does_not_fit_is_told(small_web: Web) -> None:
    overrides = {"frames": 10, "learning_rat": 1, "updates": "x", "clip": 5}
    verdict = small_web.post("/validate", {"preset": "pocket", "overrides": overrides}).json()
    assert verdict["valid"] is False
    told = {problem["field"]: problem["message"] for problem in verdict["problems"]}
    assert told.keys() == overrides.keys()
    assert told["frames"] == "must be 4n+1, got 10; the nearest are 9 and 13"
    assert "learning_rate" in told["learning_rat"]
    for body, field in (
        ({"preset": "poket"}, "preset"),
        ({"preset": "pocket", "overrides": {"candidate_steps": [50]}}, "candidate_steps"),
        ({"preset": "pocket", "rewards": {"no_such": 1}}, ""),
    ):
        verdict = small_web.post("/validate", body).json()
        assert [problem["field"] for problem in verdict["problems"]] == [field], verdict
    good = small_web.post("/validate", {"preset": "pocket", "overrides": {"updates": 3}}).json()
    assert (good["valid"], good["problems"], good["config"]["updates"]) == (True, [], 3)


def test_planning_does_not_keep_others_waiting(small_web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    from flash_grpo_studio.app.api import plans

    def slow(*_: Any) -> Any:
        time.sleep(1.5)
        raise ZeroDivisionError

    monkeypatch.setattr(plans, "_planned", slow)
    threads = [threading.Thread(target=small_web.post, args=("/plan", {"preset": "micro"})) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    start = time.perf_counter()
    assert small_web.get("/jobs").status_code == 200
    assert time.perf_counter() - start < 1
    for thread in threads:
        thread.join()


def test_no_route_imports_torch() -> None:
    code = (
        "import sys, tempfile, pathlib\n"
        "from tests.app.web import open_web\n"
        "folder = pathlib.Path(tempfile.mkdtemp())\n"
        "with open_web(f'sqlite:///{folder}/s.db', folder) as web:\n"
        "    assert 'torch' not in sys.modules\n"
        "    for path in ('/presets', '/rewards', '/models', '/schema', '/built-in-prompts?name=pocket:train'):\n"
        "        assert web.get(path).status_code == 200, path\n"
        "    job = web.submit()\n"
        "    assert web.get(f'/jobs/{job}/plan').status_code == 200\n"
        "    assert web.post('/plan', {'preset': 'wan2.1-14b', 'gpu': 'H100'}).status_code == 200\n"
        "    assert web.post('/validate', {'preset': 'wan2.1-14b'}).json()['valid']\n"
        "    for wish in ('pause', 'resume', 'cancel'):\n"
        "        assert web.post(f'/jobs/{job}/{wish}').status_code == 200\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
