"""Files and videos: by id only, in parts, nothing a browser might run, nothing outside the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flash_grpo_studio.app.api.limits import MB, Limits
from flash_grpo_studio.app.store.tables import File, Video
from tests.app.web import MP4, Web, open_web, something_of_everything

PART = b'--x\r\nContent-Disposition: form-data; name="%s"; filename="a.txt"\r\n\r\nabc'
HTML = b"<html><script>alert(1)</script></html>"


def local(web: Web) -> Any:
    web.studio.accounts.local_admin()
    return web.studio.accounts.named("local")


def upload(web: Web, name: str, content: bytes, **more: Any) -> Any:
    return web.call("POST", "/uploads", files={"file": (name, content)}, **more)


def test_videos_are_served_in_parts(small_web: Web) -> None:
    web = small_web
    things = something_of_everything(web, local(web))
    video = web.get(f"/videos/{things['video_id']}").json()
    assert (video["media_type"], video["update"]) == ("video/mp4", 0) and "path" not in video
    url = f"/videos/{things['video_id']}/content"
    whole = web.get(url)
    assert (whole.content, whole.headers["content-type"]) == (MP4, "video/mp4")
    assert whole.headers["content-disposition"].startswith("inline")
    assert whole.headers["cache-control"].startswith("private")
    part = web.get(url, headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, b"ftyp")
    assert part.headers["content-range"] == f"bytes 4-7/{len(MP4)}"
    assert web.get(url, headers={"Range": "bytes=-3"}).content == MP4[-3:]
    assert web.get(url, headers={"Range": f"bytes={len(MP4)}-"}).status_code == 416
    assert web.get(url, headers={"Range": "bytes=x-y"}).status_code == 400
    unchanged = web.get(url, headers={"If-None-Match": whole.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    listed = web.get(f"/jobs/{things['job_id']}/videos").json()
    assert [entry["id"] for entry in listed["videos"]] == [things["video_id"]]
    assert web.get(f"/jobs/{things['job_id']}/videos", params={"update": 5}).json()["total"] == 0


def test_a_video_that_was_rendered_again_is_never_taken_from_a_cache(small_web: Web) -> None:
    """A resumed run writes its videos under the same names; a player must not go on with the old one's bytes."""
    web = small_web
    things = something_of_everything(web, local(web))
    url = f"/videos/{things['video_id']}/content"
    first = web.get(url)
    etag = first.headers["etag"]
    assert not etag.startswith("W/") and "must-revalidate" in first.headers["cache-control"]
    assert first.headers["x-content-type-options"] == "nosniff"
    for offered in (etag, f"W/{etag}", f'"other", {etag}'):
        assert web.get(url, headers={"If-None-Match": offered}).status_code == 304
        assert web.get(url, headers={"If-None-Match": offered, "Range": "bytes=4-7"}).status_code == 304
    part = web.get(url, headers={"Range": "bytes=4-7", "If-Range": etag})
    assert (part.status_code, part.headers["etag"]) == (206, etag)
    again = MP4[:-1] + b"x"  # of the same length
    new = web.studio.workspace.run(things["job_id"]) / "videos" / "new.mp4"
    new.write_bytes(again)
    new.replace(new.with_name("a.mp4"))
    assert web.get(url, headers={"If-None-Match": etag}).content == again
    changed = web.get(url, headers={"Range": "bytes=4-7", "If-Range": etag})
    assert (changed.status_code, changed.content) == (200, again)
    assert changed.headers["etag"] != etag


def test_many_videos_in_order_by_page(web: Web) -> None:
    things = something_of_everything(web, local(web))
    owner = local(web).id
    with web.studio.store.writing() as session:
        for number in range(6):
            row = Video(owner_id=owner, job_id=things["job_id"], path=f"p{number}", update=number % 3, seed=number)
            session.add(row)
    seen, cursor = [], None
    for _ in range(4):
        params: dict[str, Any] = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = web.get(f"/jobs/{things['job_id']}/videos", params=params).json()
        seen += [(video["update"], video["seed"]) for video in page["videos"]]
        cursor = page["next"]
    assert cursor is None
    assert seen == [(0, None), (0, 0), (0, 3), (1, 1), (1, 4), (2, 2), (2, 5)]


def test_the_files_of_a_job_get_ids_once(web: Web) -> None:
    things = something_of_everything(web, local(web))
    job = things["job_id"]
    folder = web.studio.workspace.job(job)
    (folder / "run" / "chart.png").write_bytes(b"png")
    (folder / "run" / "export" / "adapter").mkdir(parents=True)
    (folder / "run" / "export" / "adapter" / "x.safetensors").write_bytes(b"weights")
    (folder / "run" / "lock").write_text("secret fencing", encoding="utf-8")
    (folder / "run" / "export" / "link").symlink_to("/etc/passwd")
    first = web.get(f"/jobs/{job}/files").json()["files"]
    assert {entry["path"]: entry["kind"] for entry in first} == {
        "run/config.yaml": "config",
        "run/chart.png": "chart",
        "run/export/adapter/x.safetensors": "export",
    }
    (folder / "run" / "chart.png").write_bytes(b"longer png")
    second = web.get(f"/jobs/{job}/files").json()["files"]
    assert [entry["id"] for entry in first] == [entry["id"] for entry in second]
    chart = next(entry for entry in second if entry["kind"] == "chart")
    assert chart["bytes"] == 10
    served = web.client.get(chart["url"])
    assert (served.content, served.headers["content-type"]) == (b"longer png", "image/png")
    config = web.client.get(next(entry["url"] for entry in second if entry["kind"] == "config"))
    assert config.headers["content-disposition"].startswith("attachment")
    (folder / "run" / "chart.png").unlink()
    assert web.client.get(chart["url"]).status_code == 404
    assert web.call("DELETE", f"/jobs/{job}").status_code == 200
    assert web.client.get(chart["url"]).status_code == 404


def test_what_processes_wrote_is_handed_out_without_secrets(small_web: Web) -> None:
    things = something_of_everything(small_web, local(small_web))
    job = things["job_id"]
    folder = small_web.studio.workspace.job(job)
    (folder / "attempts" / "1").mkdir(parents=True)
    told = "café: token=hf_abcdefghijklmnop at redis://ann:pa55word@host/0\n"
    for name in ("run/log.txt", "attempts/1/output.txt", "run/events.jsonl"):
        (folder / name).write_text(told, encoding="utf-8")
    (folder / "run" / "config.yaml").write_text(told, encoding="utf-8")
    files = {entry["kind"]: entry["url"] for entry in small_web.get(f"/jobs/{job}/files").json()["files"]}
    for kind in ("log", "output", "events"):
        served = small_web.client.get(files[kind], headers={"Range": "bytes=10-40"})
        assert served.status_code == 200 and served.text == "café: token=*** at redis://ann:***@host/0\n", kind
        assert served.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in served.headers["content-security-policy"]
    whole = small_web.client.get(files["config"])
    assert whole.text == told, "only what processes wrote is changed"


@pytest.mark.parametrize("name", ["a.html", "a.svg", "a.xml", "a.js", "a.pdf", "a", "a.HTM", "a.mp4.html", "a.xhtml"])
def test_nothing_that_a_browser_runs_is_shown(small_web: Web, name: str) -> None:
    web = small_web
    (web.studio.workspace.folder / name).write_bytes(HTML)
    owner = local(web).id
    with web.studio.store.writing() as session:
        row = File(owner_id=owner, kind="export", name=name, path=name)
        session.add(row)
    served = web.get(f"/files/{row.id}/content")
    assert served.headers["content-type"] == "application/octet-stream"
    assert served.headers["content-disposition"].startswith("attachment")
    assert served.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in served.headers["content-security-policy"]


def test_no_row_leads_outside_the_workspace(small_web: Web, tmp_path: Path) -> None:
    web = small_web
    outside = tmp_path / "outside.mp4"
    outside.write_bytes(b"secret")
    (web.studio.workspace.folder / "link.mp4").symlink_to(outside)
    (web.studio.workspace.folder / "folder.mp4").mkdir()
    owner = local(web).id
    for path in ("../outside.mp4", str(outside), "link.mp4", "folder.mp4", "missing.mp4", "."):
        with web.studio.store.writing() as session:
            row = Video(owner_id=owner, path=path)
            session.add(row)
        answer = web.get(f"/videos/{row.id}/content")
        assert answer.status_code == 404 and b"secret" not in answer.content, path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("clip.mp4", MP4, ("clip.mp4", "upload", "video/mp4")),
        ("clip.mov", b"\x00\x00\x00\x14ftypqt  " + b"\0" * 50, ("clip.mov", "upload", "video/quicktime")),
        ("clip.webm", b"\x1a\x45\xdf\xa3....webm" + b"\0" * 60, ("clip.webm", "upload", "video/webm")),
        ("clip.mkv", b"\x1a\x45\xdf\xa3....matroska" + b"\0" * 60, ("clip.mkv", "upload", "video/x-matroska")),
        ("clip.gif", b"GIF89a" + b"\0" * 60, ("clip.gif", "upload", "image/gif")),
        ("prompts.txt", b"\xef\xbb\xbfa red circle\n", ("prompts.txt", "prompts", "text/plain")),
        ("prompts.csv", "prompt\nein K\u00e4fer\n".encode(), ("prompts.csv", "prompts", "text/plain")),
        ("evil.html", MP4, ("evil.mp4", "upload", "video/mp4")),
        ("../../../etc/cron.d/x.mp4", MP4, ("x.mp4", "upload", "video/mp4")),
        ("..\\..\\x.mp4", MP4, ("x.mp4", "upload", "video/mp4")),
        ("na\u0308me \u202e<b>.mp4", MP4, ("na-me-b.mp4", "upload", "video/mp4")),
        (".mp4", MP4, ("mp4.mp4", "upload", "video/mp4")),
    ],
)
def test_uploads_are_told_by_their_content(lasting_web: Web, name: str, content: bytes, expected: Any) -> None:
    answer = upload(lasting_web, name, content)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["name"], made["kind"], made["media_type"]) == expected
    assert lasting_web.client.get(made["url"]).content == content
    folder = lasting_web.studio.workspace.folder / "uploads" / made["id"]
    assert [path.name for path in folder.iterdir()] == [made["name"]]
    assert lasting_web.call("DELETE", f"/uploads/{made['id']}").status_code == 200
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("a.mp4", b"MZ\x90\x00" + b"\0" * 100, 415),
        ("a.txt", b"\xff\xfe\x00\x01" * 30, 415),
        ("a.txt", b"a good start\n" * 20 + b"\xff\xff", 415),
        ("a.txt", b"a good start\n" * 20 + b"\0", 415),
        ("a.txt", b"ends in half a letter" + b" " * 100 + b"\xc3", 415),
        ("a.html", HTML, 415),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        ("a.mp4", b"", 422),
        ("a.txt", b"   \n", 415),
        ("a.mp4", b"\x00\x00\x00\x18ftypmp42" + b"\0" * (2 * MB), 413),
        ("a.txt", b"words and words\n" * (MB // 8), 413),
    ],
)
def test_uploads_that_are_refused_leave_nothing(tmp_path: Path, name: str, content: bytes, status: int) -> None:
    limits = Limits(video=MB, prompts=MB // 2)
    with open_web(f"sqlite:///{tmp_path / 's.db'}", tmp_path, limits) as web:
        assert upload(web, name, content).status_code == status
        assert list((web.studio.workspace.folder / "uploads").iterdir()) == []
        assert web.get("/uploads").json()["total"] == 0


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "multipart/form-data; boundary=x", 422),
        (b"nonsense", "multipart/form-data; boundary=x", 422),
        (b"--x\r\n", "multipart/form-data; boundary=x", 422),
        (PART % b"other" + b"\r\n--x--\r\n", "multipart/form-data; boundary=x", 422),
        (PART % b"file", "multipart/form-data; boundary=x", 422),
        (b"--x\r\n" + b"A: " + b"a" * 9000 + b"\r\n\r\n", "multipart/form-data; boundary=x", 422),
        (b"{}", "application/json", 415),
        (b"{}", "multipart/form-data", 415),
    ],
)
def test_forms_that_are_none(lasting_web: Web, body: bytes, content_type: str, status: int) -> None:
    answer = lasting_web.call("POST", "/uploads", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == status, answer.text
    assert not list((lasting_web.studio.workspace.folder / "uploads").glob(".*"))


def test_two_files_at_once_are_refused(lasting_web: Web) -> None:
    both = [("file", ("a.mp4", MP4)), ("file", ("b.mp4", MP4))]
    assert lasting_web.call("POST", "/uploads", files=both).status_code == 422


def test_a_full_disk_is_said_before_anything_is_read(small_web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_web.studio.workspace, "free_bytes", lambda: 10 * MB)
    answer = upload(small_web, "a.mp4", MP4)
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")


def test_files_of_jobs_are_no_uploads(small_web: Web) -> None:
    web = small_web
    things = something_of_everything(web, local(web))
    listed = web.get(f"/jobs/{things['job_id']}/files").json()["files"]
    assert web.call("DELETE", f"/uploads/{listed[0]['id']}").status_code == 404
