"""The pack in ComfyUI's page, in a real browser: the player plays in its node, and nodes say what they have to say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.pages.barcode import POCKET, READER, write_clip
from tests.custom_nodes.adapters import lora, named, write
from tests.custom_nodes.fake_studio import JOB, TOKEN, fake_studio
from tests.custom_nodes.real.comfyui import Comfy
from tests.custom_nodes.real.page import ComfyPage, chromium, example, two_files

POCKET_EXAMPLE = "1_pocket_before_after"
HACK = "<img src=x onerror='window.hacked=1'>"
FRAMES = 49


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Any, comfy: Comfy) -> Iterator[ComfyPage]:
    """A page that must end without an error of ours and without a request to elsewhere."""
    comfy.call("/history", {"clear": True})
    found = ComfyPage(browser, comfy)
    yield found
    found.close()


@pytest.fixture(scope="module")
def clips(comfy: Comfy) -> tuple[Path, Path]:
    """Two videos with the number of each frame burnt in, in ComfyUI's input folder."""
    folder = comfy.base / "input"
    return (
        write_clip(folder / "before.mp4", FRAMES, **POCKET),
        write_clip(folder / "after.mp4", FRAMES, **POCKET, tint=60),
    )


def compare(page: ComfyPage, clips: tuple[Path, Path]) -> None:
    """Both clips in the player."""
    page.load(two_files(*clips))
    page.run()
    page.wait_for_player()
    page.show("CompareVideos")


# the first comparison ------------------------------------------------------------------------------------------------


def test_from_the_list_of_templates_to_before_and_after(page: ComfyPage) -> None:
    look = page.look
    look.get_by_role("button", name="Templates").click()
    look.get_by_text("comfyui_flash_grpo").click()
    look.get_by_test_id(f"template-workflow-{POCKET_EXAMPLE}").click()
    look.wait_for_selector(".flash-grpo-card")
    assert "Nothing to compare yet" in look.locator(".flash-grpo-card").inner_text()
    page.node("SamplePair", "node.widgets.find(({name}) => name === 'sampling_steps').value = 4")
    page.run()
    page.wait_for_player()
    assert look.locator(".flash-grpo-card").is_hidden()
    assert re.fullmatch(r"Same prompt, seed \d, 4 steps, cfg 3, uni_pc / simple", page.shadow(".chip").inner_text())
    badges = page.shadow(".badges li").all_inner_texts()
    assert len(badges) == 5 and "subject_size" in badges[0] and "optimised" in badges[0]
    assert all("watched" in badge for badge in badges[1:])
    assert "pocket-subject-size, update 80" in look.locator(".flash-grpo-choice").inner_text()
    info = page.note("LoadCheckpoint")
    assert re.search(r"matched \d+ layers \(\d+ keys\), unmatched \d+ layers of the model, unused 0 keys", info), info
    assert "subject_size: " in page.note("ScoreVideo")
    seen = {json.dumps(page.player(DRAWN)) for _ in range(20) if not look.wait_for_timeout(100)}
    assert len(seen) > 4, "the pictures of the player do not move"


DRAWN = """player.pictures.map((picture) => {
  const canvas = new OffscreenCanvas(8, 8).getContext("2d");
  canvas.drawImage(picture, 0, 0, 8, 8);
  return [...canvas.getImageData(0, 0, 8, 8).data];
})"""


def test_both_videos_advance_in_lock_step(page: ComfyPage, clips: tuple[Path, Path]) -> None:
    compare(page, clips)
    assert page.player("player.frames") == FRAMES
    page.look.evaluate(f"() => {{ {READER} }}")
    seen = page.player("fgWatch(player, 4000)")
    assert set(seen["shown"]) <= {"0", "1"} and seen["shown"]["0"] > 10, f"frames apart while playing: {seen}"
    assert seen["frames"] > 10, f"it does not advance: {seen}"
    page.shadow("[aria-label=Pause]").click()
    for button, step in (("Forward one frame", 1), ("Forward ten frames", 10), ("Back one frame", -1)):
        before = page.player("fgRead(player.pictures)")
        page.shadow(f"[aria-label='{button}']").click()
        wanted = min(FRAMES - 1, before[0] + step)
        page.look.wait_for_function(
            "wanted => fgRead(document.querySelector('fg-player').pictures).every((found) => found === wanted)",
            arg=wanted,
        )
    assert "How the two were made is not known" in page.look.locator(".flash-grpo-compare").inner_text()


def test_a_sweep_s_checkpoints_are_chosen_in_the_node(page: ComfyPage) -> None:
    page.load(example("3_pocket_two_checkpoints", 2))
    page.run()
    page.wait_for_player()
    choice = page.look.locator(".flash-grpo-choice select")
    assert choice.locator("option").all_inner_texts() == [f"pocket-subject-size, update {u}" for u in (60, 80)]
    first = page.shadow(".badges").inner_text()
    choice.select_option(index=1)
    page.look.wait_for_function(
        "first => document.querySelector('fg-player').shadowRoot.querySelector('.badges').innerText !== first",
        arg=first,
    )
    assert json.loads(page.saved())["nodes"][-1]["properties"]["player_pair"] == 1
    assert len(re.findall("^matched", page.note("LoadCheckpoint"), re.MULTILINE)) == 2


# what is kept --------------------------------------------------------------------------------------------------------


def test_a_reload_keeps_mode_and_frame_and_a_workflow_holds_no_address(
    page: ComfyPage, clips: tuple[Path, Path]
) -> None:
    compare(page, clips)
    page.shadow("[aria-label=Pause]").click()
    page.shadow(
        ".modes button",
    ).filter(has_text="Difference").click()
    page.player("player.frame = 17")
    page.look.wait_for_function(f"({KEPT})('difference', 17)")
    text = page.saved()
    assert (
        "view?" not in text
        and "http" not in text
        and "temp" not in text
        and ".mp4" not in text.replace("before.mp4", "").replace("after.mp4", "")
    ), "an address was saved"
    page.reload()
    page.wait_for_player()
    assert page.player("[player.mode, player.frame, player.playing]") == ["difference", 17, False]
    page.look.keyboard.press("Control+z")  # the graph is built anew, and shows what it showed
    page.look.wait_for_timeout(1000)
    page.wait_for_player()
    # A run shows the new videos as the old ones were looked at.
    page.run()
    page.look.wait_for_timeout(1500)
    page.wait_for_player()
    assert page.player("player.mode") == "difference"


KEPT = """(mode, frame) => {
  const { properties } = app.graph.nodes.find(({ type }) => type === "FlashGrpoCompareVideos");
  return properties.player_mode === mode && properties.player_frame === frame;
}"""


def test_videos_that_are_gone_and_results_that_are_forgotten_are_told(
    page: ComfyPage, clips: tuple[Path, Path]
) -> None:
    compare(page, clips)
    for file in (page.comfy.base / "temp" / "flash_grpo").iterdir():
        file.unlink()
    page.problems.clear()
    page.reload()
    page.look.wait_for_function(
        "document.querySelector('fg-player')?.shadowRoot.textContent.includes('no longer has this video')"
    )
    page.problems.clear()  # the browser reports each file that is missing
    page.comfy.call("/history", {"clear": True})
    page.reload()
    page.look.wait_for_selector(".flash-grpo-card")
    assert "Press Run" in page.look.locator(".flash-grpo-card").inner_text()
    assert page.look.locator("fg-player").is_hidden()


# whose events --------------------------------------------------------------------------------------------------------


def test_wheel_drag_and_keys_are_the_player_s_inside_it_and_the_graph_s_outside(
    page: ComfyPage, clips: tuple[Path, Path]
) -> None:
    compare(page, clips)
    mouse = page.look.mouse
    box = page.shadow(".stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    view = page.view()
    # Inside, with the focus: the picture.
    page.shadow(".stage").focus()
    mouse.move(x, y)
    mouse.wheel(0, -300)
    page.look.wait_for_function("document.querySelector('fg-player').zoom.scale > 1.2")
    page.player("player.zoom = {scale: 1, x: 0, y: 0}")
    mouse.down()
    mouse.move(x - box["width"] / 4, y, steps=4)
    mouse.up()
    assert page.player("player.state().wipe") == pytest.approx(25, abs=2)
    # Keys the player knows are not ComfyUI's: `.` would fit the view, `r` is not the player's.
    page.player("player.pause()")
    frame = page.player("player.frame")
    page.look.keyboard.press(".")
    page.look.wait_for_function(
        "frame => document.querySelector('fg-player').frame === frame", arg=(frame + 1) % FRAMES
    )
    assert page.view() == view, "the graph moved under the player"
    # Beside the player, in its node: the graph.
    whole = page.look.locator(".flash-grpo-compare").bounding_box()
    edge = whole["x"] + whole["width"] / 2, whole["y"] + whole["height"] - 2
    mouse.move(*edge)
    mouse.wheel(0, 300)
    page.look.wait_for_function("scale => app.canvas.ds.scale !== scale", arg=view[0])
    page.show("CompareVideos")
    page.look.locator("canvas#graph-canvas").click(position={"x": 300, "y": 900})
    view = page.view()
    mouse.move(300, 900)
    mouse.down()
    mouse.move(360, 860, steps=4)
    mouse.up()
    assert page.view()[1:] == pytest.approx([view[1] + 60, view[2] - 40], abs=2)


def test_the_player_has_the_size_of_its_node_and_the_colours_of_the_palette(
    page: ComfyPage, clips: tuple[Path, Path]
) -> None:
    compare(page, clips)
    heights = []
    for height in (760, 960):
        page.node("CompareVideos", f"node.setSize([720, {height}]), app.canvas.setDirty(true, true)")
        page.look.wait_for_timeout(500)
        heights.append(page.shadow(".stage").bounding_box()["height"])
        root, player = (page.look.locator(name).bounding_box() for name in (".flash-grpo-compare", "fg-player"))
        assert player["y"] + player["height"] <= root["y"] + root["height"]
    assert heights[1] - heights[0] == pytest.approx(200, abs=30), heights
    grounds = []
    for palette in ("dark", "light"):
        page.look.evaluate("name => app.extensionManager.setting.set('Comfy.ColorPalette', name)", palette)
        page.look.wait_for_timeout(300)
        grounds.append(page.player("getComputedStyle(player.body).backgroundColor"))
        scheme = page.player("getComputedStyle(player).colorScheme")
        assert scheme == palette
    assert grounds == ["rgb(23, 23, 24)", "rgb(255, 255, 255)"]


# strangers' texts and failures ---------------------------------------------------------------------------------------


def test_markup_in_metadata_and_prompts_is_text(page: ComfyPage) -> None:
    folder = page.comfy.base / "models" / "loras"
    about = {"flash_grpo.run": f"{HACK} run", "flash_grpo.update": "1", "flash_grpo.rewards": json.dumps({HACK: 1.0})}
    about["flash_grpo.gains"] = json.dumps({HACK: {"before": 0.1, "after": 0.2}})
    write(folder / "html.safetensors", named(lora({"blocks.0.self_attn.q": (256, 256)}), "native"), about)
    graph = example(POCKET_EXAMPLE, 2)
    for node in graph["nodes"]:
        if node["type"] == "FlashGrpoLoadCheckpoint":
            node["widgets_values"][0] = "html.safetensors"
        if node["type"] == "FlashGrpoPocketTextEncode":
            node["widgets_values"][1] = f"a red circle {HACK}"
    page.load(graph)
    page.run()
    page.wait_for_player()
    assert f"run {HACK} run, update 1" in page.note("LoadCheckpoint")
    assert f"{HACK} (optimised): 0.100" in page.note("LoadCheckpoint")
    assert HACK in page.look.locator(".flash-grpo-choice").inner_text()
    assert "words the model does not know" in page.note("PocketTextEncode") and "onerror" in page.note(
        "PocketTextEncode"
    )
    (folder / "html.safetensors").unlink()
    assert page.look.evaluate("window.hacked") is None


def test_a_node_that_failed_says_why_and_the_graph_stays_usable(page: ComfyPage, clips: tuple[Path, Path]) -> None:
    graph = two_files(*clips)
    graph["nodes"].append(
        {"id": 4, "type": "FlashGrpoJobStatus", "pos": [0, 700], "size": [320, 120], "inputs": [], "outputs": []}
        | {"widgets_values": [JOB, 0.0]}
    )
    graph["nodes"].append(
        {"id": 5, "type": "FlashGrpoLoadCheckpoint", "pos": [0, 1000], "size": [380, 420], "inputs": [], "outputs": []}
        | {"widgets_values": ["x", 1.0, "all", 0.5, "single model", True], "mode": 4}
    )
    studio = page.comfy.base / "user" / "__flash_grpo" / "studio.json"
    studio.parent.mkdir(parents=True, exist_ok=True)
    page.load(graph)
    page.run()
    page.look.wait_for_selector(".flash-grpo-note .flash-grpo-failed", state="attached")
    assert "no studio is configured" in page.note("JobStatus")
    page.look.keyboard.press("Escape")
    button = "node.widgets.find(({type}) => type === 'button').callback()"
    with fake_studio() as server:
        server.states = ["queued", "running", "running", "running", "succeeded"]
        studio.write_text(json.dumps({"url": server.url, "token": TOKEN}), encoding="utf-8")
        try:
            page.node("LoadCheckpoint", button)
            assert "1 exported by the studio" in page.note("LoadCheckpoint")
            listed = page.node("LoadCheckpoint", "node.widgets[0].options.values")
            assert f"studio: adapter of first, 000020 [{JOB}]" in listed
            page.node("JobStatus", "node.widgets[1].value = 1")
            page.run()
            page.look.wait_for_function(f"({NOTED})('pocket: <i>size</i>: running, 3 of 80 updates')")
            assert page.node("JobStatus", "node.widgets.at(-1).element.querySelector('progress').value") == 3
            page.wait_for_player()
            page.look.wait_for_function(f"({NOTED})('succeeded')")
            server.wrong = "html"
            page.node("LoadCheckpoint", button)
            assert "does not answer as a studio does" in page.note("LoadCheckpoint")
        finally:
            studio.unlink()


NOTED = """(word) => {
  const node = app.graph.nodes.find(({ type }) => type === "FlashGrpoJobStatus");
  return node.widgets.at(-1).element.innerText.includes(word);
}"""
