"""Exports over the API: their files and sums, one archive of any size, and a hub token that nobody sees again."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.files import file_hash
from flash_grpo.sums import verify, write_sums
from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.api import zipped
from flash_grpo_studio.app.api.zipped import Entry, archive, archive_length
from flash_grpo_studio.app.store.tables import Event, Job
from tests.app.web import Web

TOKEN = "hf_a_secret_of_the_user_0123"
CARD = "---\nlicense: mit\n---\n\n# <script>alert(1)</script>\n"
FILES = {"README.md": CARD.encode(), "run-000020.safetensors": b"w" * 3_000_000, "assets/curves.png": b"png"}


def exported(web: Web, name: str, state: str = "succeeded", kind: str = "export", shared: bool = False) -> str:
    """A job with an export in its folder, as a worker leaves it; returns its id."""
    owner = web.users[name]
    with web.studio.store.writing() as session:
        job = Job(owner_id=owner.id, kind=kind, name="e", state=state, spec={}, folder="", position=1.0, shared=shared)
        session.add(job)
        session.flush()
        job.folder = web.studio.workspace.relative(web.studio.workspace.job(job.id))
        job_id = job.id
    folder = web.studio.workspace.job(job_id) / "export"
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    facts = {"flash_grpo.run": "Größe/../x", "flash_grpo.update": "20", "flash_grpo.format": "adapter"}
    files = {path: {"size": len(content), "sha256": file_hash(folder / path)} for path, content in FILES.items()}
    (folder / "export.json").write_text(json.dumps({"metadata": facts, "files": files}), encoding="utf-8")
    write_sums(folder, {path: file_hash(folder / path) for path in (*FILES, "export.json")})
    return job_id


@pytest.fixture
def people(small_web: Web) -> tuple[Web, dict[str, str], dict[str, str]]:
    return small_web, small_web.user("ann", "admin"), small_web.user("bob")


def test_an_export_tells_its_files_and_their_sums(people: Any) -> None:
    web, ann, _ = people
    job = exported(web, "ann")
    found = web.get(f"/jobs/{job}/export", headers=ann).json()
    assert (found["format"], found["checkpoint"], found["card"]) == ("adapter", "20", CARD)
    files = {file["name"]: file for file in found["files"]}
    assert files.keys() == {*FILES, "export.json", "SHA256SUMS"}
    for name, content in FILES.items():
        served = web.client.get(files[name]["url"], headers=ann)
        assert served.content == content and files[name]["bytes"] == len(content)
        assert files[name]["sha256"] == file_hash(web.studio.workspace.job(job) / "export" / name)
    assert files["SHA256SUMS"]["sha256"] is None


def test_the_archive_holds_all_and_proves_whole(people: Any, tmp_path: Path) -> None:
    web, ann, _ = people
    job = exported(web, "ann")
    answer = web.get(f"/jobs/{job}/export.zip", headers=ann)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="Gr-e---x-20-adapter.zip"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        assert found.testzip() is None
        assert {info.compress_type for info in found.infolist()} == {zipfile.ZIP_STORED}
        found.extractall(tmp_path / "there")
    [folder] = (tmp_path / "there").iterdir()
    assert folder.name == "Gr-e---x-20-adapter"
    assert verify(folder).keys() == {*FILES, "export.json"}
    assert (folder / "run-000020.safetensors").read_bytes() == FILES["run-000020.safetensors"]


@pytest.mark.parametrize("route", ["export", "export.zip"])
def test_only_who_may_see_the_job_gets_its_export_once_it_is_done(people: Any, route: str) -> None:
    web, ann, bob = people
    mine, shared = exported(web, "ann"), exported(web, "ann", shared=True)
    assert web.get(f"/jobs/{mine}/{route}", headers=bob).status_code == 404
    assert web.get(f"/jobs/{mine}/{route}").status_code == 401
    assert web.get(f"/jobs/{shared}/{route}", headers=bob).status_code == 200
    for state in ("running", "queued", "failed", "cancelled"):
        answer = web.get(f"/jobs/{exported(web, 'ann', state)}/{route}", headers=ann)
        assert (answer.status_code, answer.json()["error"]["state"]) == (409, state)
    assert web.get(f"/jobs/{exported(web, 'ann', kind='preview')}/{route}", headers=ann).status_code == 404
    folder = web.studio.workspace.job(mine) / "export"
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to("/etc/passwd")
    answer = web.get(f"/jobs/{mine}/{route}", headers=ann)
    assert b"root:" not in answer.content and (route == "export" or answer.status_code == 404)
    (folder / "export.json").write_text("{", encoding="utf-8")
    assert web.get(f"/jobs/{mine}/{route}", headers=ann).status_code == 404


# archives of any size ---------------------------------------------------------------------------------------------


def entries(folder: Path, sizes: dict[str, int]) -> list[Entry]:
    found = []
    for name, size in sizes.items():
        (folder / name).write_bytes(os.urandom(size) if size < 2**20 else b"")
        if size >= 2**20:
            os.truncate(folder / name, size)  # takes no room on the disk
        found.append(Entry(f"root/{name}", folder / name, size, 1_700_000_000.0))
    return found


@pytest.mark.parametrize("largest", [None, 1000, 3000])
def test_what_is_beyond_the_first_format_is_told_by_the_wider_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int | None
) -> None:
    """The limit of 4 GiB is lowered instead of the files being made so large; the readers are others' programs."""
    if largest is not None:
        monkeypatch.setattr(zipped, "LIMIT", largest)
    made = entries(tmp_path, {"small": 10, "empty": 0, "large": 2500, "ünïcode 名": 700, "last": 5})
    content = b"".join(archive(made))
    assert archive_length(made) == len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        read = {info.filename: found.read(info) for info in found.infolist()}
        assert read == {entry.name: entry.path.read_bytes() for entry in made}
        assert found.infolist()[0].date_time[0] == 2023
        wide = [info.filename for info in found.infolist() if info.extract_version >= 45]
    assert (wide == []) == (largest is None), "the wider format is used where it must be and nowhere else"


def test_a_file_that_became_shorter_breaks_the_archive_off(tmp_path: Path) -> None:
    [entry] = entries(tmp_path, {"a": 5000})
    (tmp_path / "a").write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="root/a became shorter while it was sent"):
        b"".join(archive([entry]))
    (tmp_path / "a").write_bytes(b"x" * 9000)
    assert archive_length([entry]) == len(b"".join(archive([entry]))), "one that grew is sent as it was said"


@pytest.mark.slow
def test_an_archive_of_more_than_four_gibibytes_is_read_by_others(tmp_path: Path) -> None:
    made = entries(tmp_path, {"first": 5, "huge": 2**32 + 12_345, "last": 7})
    target, written = tmp_path / "out.zip", 0
    with target.open("wb") as file:
        for piece in archive(made):
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)
            else:
                file.write(piece)
            written += len(piece)
        file.truncate(written)
    assert archive_length(made) == written > 2**32
    with zipfile.ZipFile(target) as found:
        assert found.testzip() is None
        assert [info.file_size for info in found.infolist()] == [5, 2**32 + 12_345, 7]
        assert found.read("root/last") == (tmp_path / "last").read_bytes()
    if os.path.exists("/usr/bin/unzip"):
        assert subprocess.run(["unzip", "-tq", str(target)], check=False, capture_output=True).returncode == 0


# the hub token ----------------------------------------------------------------------------------------------------


def everything_written(web: Web) -> dict[str, bytes]:
    """All files of the studio but the secrets, and its database."""
    root = web.studio.workspace.folder.parent
    files = [path for path in root.rglob("*") if path.is_file() and "secrets" not in path.relative_to(root).parts]
    assert any(path.suffix == ".db" for path in files), "the database is among them"
    return {str(path): path.read_bytes() for path in files}


def test_a_hub_token_is_kept_and_told_to_nobody(people: Any, caplog: pytest.LogCaptureFixture) -> None:
    web, ann, bob = people
    assert web.get("/me", headers=ann).json()["hub_token"] is False
    answers = [web.call("PUT", "/me/hub-token", json={"token": f" {TOKEN}\n"}, headers=ann)]
    assert answers[0].status_code == 200
    answers += [web.get(path, headers=ann) for path in ("/me", "/users", "/audit", "/tokens")]
    assert answers[1].json()["hub_token"] is True and web.get("/me", headers=bob).json()["hub_token"] is False
    assert not [answer for answer in answers if TOKEN in answer.text] and TOKEN not in caplog.text
    assert not [name for name, content in everything_written(web).items() if TOKEN.encode() in content]
    with web.studio.store.reading() as session:
        assert session.query(Event).filter(Event.type == "hub_token_kept").count() == 1
    file = web.studio.workspace.folder / "secrets" / "hub" / web.users["ann"].id
    assert file.read_text() == TOKEN
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)}
    assert list(modes.values()) == [0o600, 0o700, 0o700]
    assert web.get("/files/secrets", headers=ann).status_code == 404
    assert web.call("DELETE", "/me/hub-token", headers=ann).status_code == 200
    assert web.get("/me", headers=ann).json()["hub_token"] is False and not file.exists()
    assert web.call("DELETE", "/me/hub-token", headers=ann).status_code == 200, "twice is once"


@pytest.mark.parametrize(
    "token", ["short", "two words of it", "x" * 201, "ümläüte-12345678", "line\nbreak-123456", "", 7]
)
def test_what_is_no_token_is_refused_without_being_repeated(people: Any, token: Any) -> None:
    web, ann, _ = people
    answer = web.call("PUT", "/me/hub-token", json={"token": token}, headers=ann)
    assert answer.status_code == 422 and (len(str(token)) < 8 or str(token) not in answer.text)
    assert web.get("/me", headers=ann).json()["hub_token"] is False


def test_who_only_reads_keeps_no_token_and_who_leaves_takes_it_along(people: Any) -> None:
    web, ann, bob = people
    reader, viewer = web.token("bob", ["read"]), web.user("eve", "viewer")
    for headers in (reader, viewer):
        assert web.call("PUT", "/me/hub-token", json={"token": TOKEN}, headers=headers).status_code == 403
        assert web.call("DELETE", "/me/hub-token", headers=headers).status_code == 403
    for end in ({"revoke": True}, None):
        assert web.call("PUT", "/me/hub-token", json={"token": TOKEN}, headers=bob).status_code == 200
        bobs = web.users["bob"].id
        assert hub_tokens.has(web.studio.workspace, bobs)
        if end:
            assert web.call("PATCH", f"/users/{bobs}", json=end, headers=ann).status_code == 200
            bob = web.token("bob", ["read", "write"])
        else:
            assert web.call("DELETE", f"/users/{bobs}", headers=ann).status_code == 200
        assert not hub_tokens.has(web.studio.workspace, bobs)


# asking for jobs --------------------------------------------------------------------------------------------------


def test_an_export_is_sent_only_when_it_is_there_and_with_ones_own_token(people: Any) -> None:
    web, ann, bob = people
    job = exported(web, "bob")

    def ask(headers: dict[str, str], **changes: Any) -> Any:
        return web.post("/jobs", {"kind": "push", "job_id": job, "repo": "bob/aligned", **changes}, headers=headers)

    answer = ask(bob)
    assert answer.status_code == 422 and "you have no hub token yet" in answer.json()["error"]["message"]
    assert web.call("PUT", "/me/hub-token", json={"token": TOKEN}, headers=bob).status_code == 200
    made = ask(bob)
    assert made.status_code == 201 and made.json()["devices"] == 0 and made.json()["parent_id"] == job
    with web.studio.store.reading() as session:
        task = session.get_one(Job, made.json()["id"]).spec["task"]
    assert task == {"export": f"jobs/{job}/export", "repo": "bob/aligned", "private": True, "user": web.users["bob"].id}
    assert ask(ann).status_code == 422, "an administrator sees the export, but has no token"
    for changes in ({"repo": "aligned"}, {"repo": "a/../b"}, {"repo": "a/b/c"}, {"private": "maybe"}, {"token": TOKEN}):
        assert ask(bob, **changes).status_code == 422, changes
    assert ask(bob, job_id=exported(web, "bob", "running")).status_code == 409
    assert ask(bob, job_id=exported(web, "bob", kind="preview")).status_code == 422
    assert ask(bob, job_id=exported(web, "ann")).status_code == 404
    assert not [name for name, content in everything_written(web).items() if TOKEN.encode() in content]
