"""The pack's client of the studio: what goes wrong is one sentence, and the token goes nowhere else."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from custom_nodes.comfyui_flash_grpo.logic.studio import Exported, Studio, job_of
from custom_nodes.comfyui_flash_grpo.logic.studio_jobs import Standing, launch, look, parse_changes, score, wait
from custom_nodes.comfyui_flash_grpo.logic.studio_settings import TOKEN as TOKEN_VARIABLE
from custom_nodes.comfyui_flash_grpo.logic.studio_settings import URL, Access, needed, read_access
from tests.custom_nodes.fake_studio import JOB, TOKEN, FakeStudio, fake_studio


@pytest.fixture
def server() -> Iterator[FakeStudio]:
    with fake_studio() as running:
        yield running


def studio(server: FakeStudio, token: str = TOKEN) -> Studio:
    return Studio(Access(server.url, token, "studio.json"), seconds=5)


# exports -------------------------------------------------------------------------------------------------------------


def test_an_export_is_listed_downloaded_once_and_checked(server: FakeStudio, tmp_path: Path) -> None:
    (listed,) = studio(server).exports()
    assert listed == Exported(JOB, "first", "20") and job_of(listed.name) == JOB
    heard: list[tuple[int, int]] = []
    file = studio(server).fetch_adapter(JOB, tmp_path / "deep", lambda done, total: heard.append((done, total)))
    assert file.read_bytes() == server.adapter and file.name.startswith("first-000020-")
    assert heard[-1] == (len(server.adapter), len(server.adapter))
    before = len(server.asked)
    assert studio(server).fetch_adapter(JOB, tmp_path / "deep") == file
    assert [path for path, _ in server.asked[before:]] == [f"/api/v1/jobs/{JOB}/export"]
    file.write_bytes(b"someone changed it")
    assert studio(server).fetch_adapter(JOB, tmp_path / "deep").read_bytes() == server.adapter


@pytest.mark.parametrize(
    ("wrong", "entry", "sentence"),
    [
        ("short", {}, "cannot reach the studio|did not arrive as the studio has it"),
        ("", {"sha256": "0" * 64}, "did not arrive as the studio has it .*another checksum"),
        ("", {"bytes": 100}, "did not arrive as the studio has it"),
        ("", {"sha256": "../x"}, "names no checksum"),
        ("", {"url": "http://example.invalid/steal"}, "names a file on another server"),
        ("", {"name": "readme.txt"}, "is no adapter"),
        ("gone", {}, "the studio says: no job <b>here</b>. look elsewhere"),
    ],
)
def test_a_download_that_went_wrong_leaves_nothing_behind(
    wrong: str, entry: dict[str, object], sentence: str, server: FakeStudio, tmp_path: Path
) -> None:
    server.wrong, server.entry = wrong, entry
    with pytest.raises(Problem, match=sentence):
        studio(server).fetch_adapter(JOB, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_can_be_interrupted(server: FakeStudio, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def told(done: int, total: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        studio(server).fetch_adapter(JOB, tmp_path, told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../evil", "..\\evil", "/etc/passwd", "<b>", "." * 9, "x" * 500])
def test_the_name_of_a_download_stays_in_its_folder(name: str, server: FakeStudio, tmp_path: Path) -> None:
    server.entry = {"name": f"{name}.safetensors"}
    file = studio(server).fetch_adapter(JOB, tmp_path / "here")
    assert file.parent == tmp_path / "here" and len(file.name) < 150 and not set(file.name) & set('<>/\\:"')


def test_a_listed_name_gives_its_job_back_and_a_file_s_name_gives_none() -> None:
    assert job_of(Exported(JOB, "x]\n[y", "best").name) == JOB
    assert job_of("first-000020.safetensors") is None and job_of(f"sub/[{JOB}]") is None


# what goes wrong -----------------------------------------------------------------------------------------------------


def test_a_wrong_token_is_said_and_not_shown(server: FakeStudio) -> None:
    with pytest.raises(Problem, match="does not know this token; make a new one .*studio.json") as caught:
        studio(server, "wrong-secret").exports()
    assert "wrong-secret" not in str(caught.value) and "wrong-secret" not in repr(studio(server, "wrong-secret").access)


def test_a_studio_that_is_not_there_says_where_it_was_looked_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(Problem, match=f"cannot reach the studio at {url} .*start it, or correct .* studio.json"):
            Studio(Access(url, TOKEN, "studio.json")).exports()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Problem, match="cannot reach the studio .*timed out"):
            Studio(Access(url, TOKEN, "studio.json"), seconds=0.2).exports()


def test_a_redirect_is_not_followed_with_the_token(server: FakeStudio) -> None:
    server.wrong = "redirect"
    with pytest.raises(Problem, match="sends to another address"):
        studio(server).exports()
    assert len(server.asked) == 1


def test_another_program_at_the_address_is_noticed(server: FakeStudio) -> None:
    server.wrong = "html"
    with pytest.raises(Problem, match="does not answer as a studio does"):
        studio(server).exports()


# jobs ----------------------------------------------------------------------------------------------------------------


def test_the_same_inputs_are_the_same_job(server: FakeStudio) -> None:
    inputs = ("pocket", "bigger", "a red circle\n\n a blue square ", 'updates = 40\nlora_targets = ["to_q"]')
    first = launch(studio(server), *inputs, 1)
    assert first == Standing(JOB, "queued", 3, 80, "pocket: <i>size</i>: queued, 3 of 80 updates")
    launch(studio(server), *inputs, 1)
    launch(studio(server), *inputs, 2)
    one, same, other = server.sent
    assert one == same and one["idempotency_key"] != other["idempotency_key"]
    assert one["prompts"] == ["a red circle", "a blue square"] and one["name"] == "bigger"
    assert one["overrides"] == {"updates": 40, "lora_targets": ["to_q"]}


def test_what_the_studio_refuses_is_told_field_by_field(server: FakeStudio) -> None:
    server.wrong = "invalid"
    with pytest.raises(Problem, match="the request cannot be used. overrides.frames: must be 4n.1, got 10"):
        launch(studio(server), "pocket", "", "", "frames = 10", 1)
    with pytest.raises(Problem, match="expected lines such as updates = 40, got 'frames 10'"):
        parse_changes("frames 10")


def test_a_job_is_watched_to_its_end_and_no_longer_than_asked(
    server: FakeStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custom_nodes.comfyui_flash_grpo.logic.studio_jobs.PAUSE", 0.01)
    seen: list[str] = []
    assert wait(studio(server), JOB, 60, lambda standing: seen.append(standing.state)).ended
    assert seen == ["queued", "running", "succeeded"]
    server.states = ["running"]
    assert "about 2 min left" in wait(studio(server), JOB, 0, lambda standing: None).text
    with pytest.raises(Problem, match="expected a job of 16 hexadecimal digits, got '../x'"):
        look(studio(server), "../x")


def test_a_video_is_sent_made_playable_and_scored(
    server: FakeStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custom_nodes.comfyui_flash_grpo.logic.studio_jobs.PAUSE", 0.01)
    video = tmp_path / "a.mp4"
    video.write_bytes(b"\x00\x01 a video \r\n--")
    server.states, server.result = ["succeeded"], {"result": {"videos": [{"scores": {"hpsv3": 0.5, "other": 1.0}}]}}
    inputs = (video, ["hpsv3"], {"hpsv3": {"x": 1}, "flicker": {}}, "a fox", 60.0, lambda standing: None)
    assert score(studio(server), *inputs) == {"hpsv3": 0.5}
    assert video.read_bytes() in server.uploaded and b'name="file"; filename="a.mp4"' in server.uploaded
    made, scored = server.sent
    assert (made["kind"], made["file_id"]) == ("normalisation", JOB)
    assert (scored["kind"], scored["video_ids"], scored["prompt"]) == ("scoring", [JOB], "a fox")
    assert scored["reward_options"] == {"hpsv3": {"x": 1}}
    server.result = {"result": {"videos": []}}
    with pytest.raises(Problem, match="gave no scores for the video"):
        score(studio(server), *inputs)
    server.states = ["failed"]
    with pytest.raises(Problem, match="did not succeed within 60 s .*failed"):
        score(studio(server), *inputs)


# where it is ---------------------------------------------------------------------------------------------------------


def test_the_environment_comes_before_the_file_and_neither_must_be_there(tmp_path: Path) -> None:
    assert read_access(tmp_path, {}) is None
    (tmp_path / "studio.json").write_text(json.dumps({"url": "http://host:1/ ", "token": "t"}), encoding="utf-8")
    found = read_access(tmp_path, {})
    assert found is not None and (found.url, found.token) == ("http://host:1", "t")
    other = read_access(tmp_path, {URL: "https://other", TOKEN_VARIABLE: "u"})
    assert other == Access("https://other", "u", URL)


def test_without_a_studio_a_node_says_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL, raising=False)
    with pytest.raises(Problem, match=f"no studio is configured; set {URL} and .*studio.json"):
        needed(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"token": "t"}', '{"url": 1}', '{"url": "host:7860"}', '{"url": "http://u:p@h"}']
)
def test_a_malformed_file_is_refused_without_its_content(content: str, tmp_path: Path) -> None:
    (tmp_path / "studio.json").write_text(content, encoding="utf-8")
    with pytest.raises(Problem, match=r"studio\.json"):
        read_access(tmp_path, {})
