"""How a page comes to be: its own content at once, all scripts asked for together and kept, Gradio afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx

from flash_grpo_studio.app.pages.addresses import PAGES, WEB
from flash_grpo_studio.app.pages.assets import Assets

SCRIPT = re.compile(r"/web/[0-9a-f]{16}/([\w/]+\.js)$")
UNUSED_AFTER_MS = 4500
"""Chromium complains of what was asked for ahead and not used some seconds after a page is loaded."""


def _get(served: Any, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{served.url}{path}", headers=headers, trust_env=False, timeout=30)


def _root(served: Any) -> str:
    found = re.search(r'href="(/web/[0-9a-f]{16})/studio\.css"', _get(served, "/help", accept="text/html").text)
    assert found, "the page names no stylesheet below a version"
    return found[1]


def test_the_first_document_holds_the_frame_and_begins_no_script_of_gradio(served: Any) -> None:
    for page in PAGES:
        text = _get(served, page.address, accept="text/html").text
        assert f'<fg-shell page="{page.name}">' in text and f"<{page.element}>" in text, page
        assert text.index("<fg-shell") < text.index("<gradio-app"), page
        begun = re.findall(r'<script[^>]+type="module"[^>]+src="([^"]+)"', text)
        assert [SCRIPT.search(address)[1] for address in begun if SCRIPT.search(address)] == ["studio.js"], begun
        assert len(begun) == 1, f"{page.name} begins more than its own script: {begun}"
        assert 'id="fg-gradio" data-src="./assets/' in text, "where Gradio's own script is was not found"


def test_gradio_begins_after_the_content_and_leaves_it_as_it_is(studio_page: Any) -> None:
    page = studio_page.open("/help")
    page.evaluate("document.querySelector('#fg-main').dataset.mark = 'same'")
    page.wait_for_selector("gradio-app .gradio-container", state="attached")
    assert page.evaluate("document.querySelector('#fg-main').dataset.mark") == "same"
    assert page.title() == "Help · Flash-GRPO Studio"
    below = page.evaluate("document.querySelector('gradio-app').getBoundingClientRect().height")
    assert below == 0, f"Gradio has nothing to show here and takes {below} px"
    page.get_by_role("heading", name="Help", exact=True).wait_for()


def test_every_page_asks_for_all_it_needs_at_once(studio_page: Any) -> None:
    """What is asked for ahead is used, and no script is found out about only by another one."""
    opened, warnings = [], []
    first = studio_page.open("/help")
    for page in PAGES:
        tab = first.context.new_page()
        studio_page.watch(tab)
        tab.on(
            "console", lambda said, name=page.name: warnings.append((name, said)) if "preload" in said.text else None
        )
        scripts: list[str] = []
        tab.on("request", lambda asked, found=scripts: found.extend(SCRIPT.findall(asked.url)))
        tab.goto(page.address)
        opened.append((page, tab, scripts))
    assets = Assets(WEB)
    for page, tab, scripts in opened:
        tab.wait_for_selector(".fg-page h1")
        needed = assets.needed("studio.js", f"page_{page.name}.js")
        assert "studio.js" in scripts, f"the requests of {page.name} were not seen"
        late = set(scripts) - set(needed)
        assert not late, f"{page.name} finds out late that it needs {late}"
    first.wait_for_timeout(UNUSED_AFTER_MS)
    assert not warnings, [(name, said.text) for name, said in warnings]


def test_files_below_a_version_are_kept_for_good_and_others_asked_for_again(served: Any) -> None:
    root = _root(served)
    kept = _get(served, f"{root}/shell.js")
    assert kept.status_code == 200 and "immutable" in kept.headers["cache-control"]
    assert kept.headers["content-encoding"] == "gzip" and kept.headers["content-type"].startswith("text/javascript")
    plain = _get(served, "/web/shell.js", **{"accept-encoding": "identity"})
    assert plain.headers["cache-control"] == "no-cache" and "content-encoding" not in plain.headers
    assert plain.content == kept.content == (WEB / "shell.js").read_bytes()
    assert _get(served, "/web/shell.js", **{"if-none-match": plain.headers["etag"]}).status_code == 304
    former = _get(served, f"/web/{'0' * 16}/shell.js")
    assert former.status_code == 200 and former.headers["cache-control"] == "no-cache", (
        "an older page would keep the new file"
    )
    assert _get(served, f"{root}/nothing.js").status_code == 404
    assert _get(served, "/web/..%2f..%2fsettings.py").status_code == 404


def test_videos_still_come_in_parts(served: Any) -> None:
    part = _get(served, "/web/example/00-after.mp4", range="bytes=0-99")
    assert part.status_code == 206 and len(part.content) == 100 and "content-encoding" not in part.headers


def test_a_changed_file_changes_the_version(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "a.js").write_text('import {\n  b,\n} from "./part/b.js";\nimport("./c.js");\n')
    (tmp_path / "part" / "b.js").write_text('import "../d.js";\nexport { x } from "./e.js";\n')
    for name in ("c.js", "d.js", "part/e.js"):
        (tmp_path / name).write_text("")
    assets = Assets(tmp_path)
    assert assets.needed("a.js") == ["a.js", "part/b.js", "d.js", "part/e.js"], (
        "c.js is loaded later, when it is needed"
    )
    before = assets.root
    assets.refresh()
    assert assets.root == before
    (tmp_path / "d.js").write_text("// more\n")
    assets.refresh()
    assert assets.root != before
