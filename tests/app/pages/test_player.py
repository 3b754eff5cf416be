"""The player in a real browser: both sides at the same frame, at any speed, on slow lines and slow processors.

Clips carry their frames' numbers in their pixels; what is judged is what is on the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.app.pages.barcode import POCKET, read_barcode
from tests.app.pages.conftest import Served, StudioPage
from tests.app.pages.player import FRAMES, UNLABELLED, Clips, Player, throttle

SLOW_SIDE = """
() => {
  const [, follower] = player.shadowRoot.querySelectorAll("video");
  const own = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, "playbackRate");
  let rate = 1;
  const set = (value) => own.set.call(follower, 0.85 * (rate = value));
  Object.defineProperty(follower, "playbackRate", { get: () => rate, set });
  set(follower.playbackRate);
}
"""
"""One side runs slower than it is told, by more than nudging makes up for."""
LONGEST = """
Math.max(...performance.getEntriesByType("resource")
  .filter(({ name }) => name.includes("/videos/")).map(({ duration }) => duration))
"""
SCRUB = """
async (frames) => {
  const seen = fgWatch(player, 3000);
  for (let turn = 0; turn < 40; turn++) {
    player.frame = (turn * 17) % frames;
    await new Promise((done) => setTimeout(done, turn % 4 ? 20 : 180));
  }
  return await seen;
}
"""


@pytest.fixture(scope="module")
def clips(served: Served) -> Clips:
    """A pair like film, with grain that makes it large, and one like the pocket model's."""
    found = Clips(served)
    found.pair("film", grain=6)
    found.pair("pocket", frames=17, size=POCKET, fps=8.0)
    return found


@pytest.fixture
def opened(studio_page: StudioPage, clips: Clips) -> Callable[..., Player]:
    """Opens a page with a player that shows a pair."""

    def open_(*, network: bool = False, cpu: bool = False, pair: str = "film", **more: Any) -> Player:
        player = Player.open(studio_page)
        throttle(player.page, network=network, cpu=cpu)
        player.show(clips[f"{pair} before"], clips[f"{pair} after"], **more)
        return player

    return open_


def playing(player: Player) -> None:
    """Wait until it moves."""
    player.page.wait_for_function("player.playing && player.frame > 0", timeout=60_000)


def together(seen: dict[str, Any], pictures: int) -> None:
    """Fail unless the sides stayed within a frame while at least so many different frames came on the screen."""
    assert max(seen["apart"]) <= 1, seen
    assert len(seen["frames"]) >= pictures, seen
    assert seen["unread"] <= seen["samples"] / 20, seen


@pytest.mark.parametrize(("speed", "seconds", "pictures"), [(0.25, 3, 6), (1, 3, 12), (2, 3, 12)])
def test_both_sides_show_the_same_frame_at_every_speed(
    opened: Callable[..., Player], speed: float, seconds: float, pictures: int
) -> None:
    player = opened()
    player.set(speed=speed)
    playing(player)
    together(player.watch(seconds), pictures)


@pytest.mark.parametrize("slow", [("network",), ("cpu",), ("network", "cpu")], ids="+".join)
def test_a_slow_line_or_processor_costs_pictures_and_never_the_link(
    opened: Callable[..., Player], slow: tuple[str, ...]
) -> None:
    player = opened(**dict.fromkeys(slow, True))
    playing(player)
    together(player.watch(4), 4)
    if "network" in slow:
        assert player.page.evaluate(LONGEST) > 1000, "the line was not slow"


def test_the_small_clips_of_the_pocket_model_stay_together(opened: Callable[..., Player]) -> None:
    player = opened(pair="pocket", fps=8)
    playing(player)
    together(player.watch(4), 8)
    assert player.get("frames") == 17


def test_a_side_that_runs_slower_is_fetched_back_and_only_the_link_does_that(opened: Callable[..., Player]) -> None:
    player = opened()
    playing(player)
    player.page.evaluate(SLOW_SIDE)
    together(player.watch(3), 8)
    assert player.get("resyncs") > 0, "nothing had to be done, so nothing was tested"
    player.set(linked=False, frame=0)
    assert max(player.watch(2)["apart"]) > 1, "without the link nothing drifts: these tests would see nothing"


def test_the_browser_s_own_picture_shows_the_same_frame_on_both_sides(opened: Callable[..., Player]) -> None:
    player = opened()
    player.page.evaluate(UNLABELLED)
    playing(player)
    seen = []
    for _ in range(12):
        picture = player.screen()
        width = picture.shape[1]
        sides = [read_barcode(half) for half in (picture[:, : width // 2 - 1], picture[:, width // 2 + 1 :])]
        seen.append(sides)
    assert all(one is not None and one == other for one, other in seen), seen
    assert len({one for one, _ in seen}) > 3, seen


def test_steps_and_seeks_land_on_the_same_frame(opened: Callable[..., Player]) -> None:
    player = opened()
    player.page.evaluate("player.pause()")
    for frame in (0, 1, 12, 11, 24, 47, 48, 7):
        player.set(frame=frame)
        player.settle(frame)
    for key, frame in ((".", 8), (".", 9), (",", 8), (">", 18), (">", 28), ("<", 18), (",", 17)):
        player.press(key)
        player.settle(frame)
    for _ in range(6):  # faster than a video seeks: the last one counts
        player.press(".")
    player.settle(23)
    player.set(frame=0)
    player.settle(0)
    player.press("<")
    player.settle(0)
    player.set(frame=10_000)
    player.settle(FRAMES - 1)
    player.press(">")
    player.settle(FRAMES - 1)


@pytest.mark.parametrize("cpu", [False, True], ids=["plain", "slow"])
def test_on_the_way_of_many_seeks_the_sides_are_never_apart(opened: Callable[..., Player], cpu: bool) -> None:
    player = opened(cpu=cpu)
    player.page.evaluate("player.pause()")
    player.settle(player.get("frame"))
    found = player.page.evaluate(SCRUB, FRAMES)
    assert list(found["apart"]) == ["0"] and not found["unread"], found
    assert len(found["frames"]) > 5, found


def test_dragging_the_bar_seeks_both(opened: Callable[..., Player]) -> None:
    player = opened()
    player.page.evaluate("player.pause()")
    bar = player.page.locator("fg-player .seek input")
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    mouse, middle = player.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 20, middle)
    mouse.down()
    for part in (0.3, 0.7, 0.4, 0.5):
        mouse.move(box["x"] + part * box["width"], middle)
    mouse.up()
    frame = int(bar.input_value())
    assert abs(frame - FRAMES // 2) <= 2
    player.settle(frame)
    bar.press("ArrowRight")
    player.settle(frame + 1)


def test_pausing_stops_both_at_the_frame_on_the_screen(opened: Callable[..., Player]) -> None:
    player = opened()
    for _ in range(3):
        playing(player)
        before = player.page.evaluate("{ const shown = player.frame; player.pause(); shown }")
        player.settle(before)
        assert player.get("frame") == before
        player.page.evaluate("player.play()")


def test_a_loop_stays_within_its_frames(opened: Callable[..., Player]) -> None:
    player = opened()
    player.page.evaluate("player.pause()")
    player.set(frame=10)
    player.settle(10)
    player.press("i")
    player.set(frame=20)
    player.settle(20)
    player.press("o")
    assert player.page.evaluate("player.state().loop") == [10, 20]
    assert "10" in player.text(".loop") and "20" in player.text(".loop")
    player.press("k")
    playing(player)
    seen = player.watch(2)
    together(seen, 5)
    assert min(seen["frames"]) >= 10 and max(seen["frames"]) <= 20, seen
    player.page.locator("fg-player").get_by_role("button", name="Loop over all frames").click()
    player.page.wait_for_function("player.frame > 22")
    assert player.page.evaluate("player.state().loop") == [0, FRAMES - 1]


def test_many_pairs_in_one_player_keep_their_elements_and_the_last_one_counts(
    opened: Callable[..., Player], clips: Clips
) -> None:
    player = opened()
    player.page.evaluate("window.old = [...player.shadowRoot.querySelectorAll('video')]")
    for pair in ("pocket", "film", "pocket"):
        player.show(clips[f"{pair} before"], clips[f"{pair} after"], ready=False)
    player.page.wait_for_function("player.frames > 0")
    assert player.page.evaluate("old.every((video) => video.isConnected && video.src.includes('/videos/'))")
    assert [video["src"] for video in sources(player)] == [clips["pocket before"], clips["pocket after"]]
    player.page.evaluate("player.remove()")
    assert all(not video["src"] for video in sources(player)), "a player that is gone still holds its videos"
    player.page.evaluate("document.querySelector('.fg-page').append(player)")
    player.page.wait_for_function("player.frames > 0")


def sources(player: Player) -> list[dict[str, str]]:
    """What the video elements load."""
    found: list[dict[str, str]] = player.page.evaluate("old.map((video) => ({ src: video.getAttribute('src') ?? '' }))")
    return found
