"""Contact sheet, chart and table: what they show is what the run recorded."""

from __future__ import annotations

import io
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from flash_grpo.errors import InputError
from flash_grpo.events import Evaluation, EventLog, Metrics, RunStarted
from flash_grpo.report import chart, contact_sheet, final_table, footer_lines, smooth
from flash_grpo.video import Frames

CAPTION = "a small red circle moving slowly left on a black background"


def video(color: tuple[int, int, int], frames: int = 9, size: int = 32) -> Frames:
    clip = np.zeros((frames, size, size, 3), np.uint8)
    clip[:] = color
    return clip


def write_run(folder: Path, updates: int = 12) -> None:
    with EventLog(folder) as log:
        log.emit(RunStarted(config={"rewards": {"subject_size": 1, "sharpness": 0}}, versions={}))
        for update in range(updates):
            if update % 4 == 0:
                figures: dict[str, Any] = {
                    "subject_size": {"mean": 0.2 + update / 20, "ci95": [0.15 + update / 20, 0.25 + update / 20]},
                    "sharpness": {"mean": 0.4, "ci95": [0.35, 0.45]},
                }
                log.emit(Evaluation(update=update, split="validation", rewards=figures, videos=8, best=update == 8))
            spread = {"std": 0.1, "min": 0.0, "max": 1.0, "group_spread": 0.05}
            log.emit(
                Metrics(
                    update=update + 1,
                    rewards={
                        "subject_size": {"mean": 0.2 + update / 20, **spread},
                        "sharpness": {"mean": math.nan if update == 3 else 0.4, **spread},
                    },
                    advantage={"mean_abs": 0.8, "max_abs": 2.0},
                    grad_norm=0.3,
                    branch={s: {"weight": 1.0, "reward": 0.1 * s + 0.2, "groups": 2} for s in (update % 2, 2)},
                    drift=0.0,
                    clip_fraction=0.0,
                    kl=None,
                    dead_groups=0,
                    groups=4,
                    learning_rate=3e-4,
                    seconds={},
                    cost={},
                    nfe=1,
                    peak_memory_mb=1.0,
                    loss=0.0,
                )
            )


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "status": "done",
        "preset": "pocket",
        "seed": 0,
        "updates": 100,
        "nfe": 67800,
        "cost": 81234.5,
        "minutes": 8.25,
        "rewards": {"subject_size": 1.0, "sharpness": 0.0},
        "heldout": {
            "sharpness": {"before": 0.4, "after": 0.39, "gain": -0.01, "ci95": [-0.02, 0.005], "win_rate": 0.45},
            "subject_size": {"before": 0.129, "after": 0.6, "gain": 0.471, "ci95": [0.43, 0.51], "win_rate": 0.953},
        },
        "best_update": 80,
        "files": {"contact_sheet": "contact_sheet.png", "chart": "chart.png"},
        **changes,
    }


def test_the_sheet_shows_before_on_the_left_and_after_on_the_right(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    contact_sheet([(CAPTION, video((200, 0, 0)), video((0, 0, 200)))] * 2, path)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    red = (pixels == (200, 0, 0)).all(axis=2)
    blue = (pixels == (0, 0, 200)).all(axis=2)
    assert red.any()
    assert red.sum() == blue.sum()
    assert np.nonzero(red)[1].max() < np.nonzero(blue)[1].min()
    rows = red.any(axis=1).astype(int)
    assert (np.diff(rows) == 1).sum() == 2  # one band per prompt


def test_frames_run_from_the_first_to_the_last(tmp_path: Path) -> None:
    clip = video((0, 0, 0))
    clip[0], clip[-1] = (250, 0, 0), (0, 250, 0)
    contact_sheet([(CAPTION, clip, clip)], tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    first, last = ((pixels == color).all(axis=2) for color in ((250, 0, 0), (0, 250, 0)))
    assert np.nonzero(first)[1].min() < np.nonzero(last)[1].min()
    assert first.sum() == last.sum() > 0


def test_a_long_caption_and_scores_stay_on_the_sheet(tmp_path: Path) -> None:
    pair = ("word " * 200, video((9, 9, 9)), video((9, 9, 9)))
    contact_sheet([pair], tmp_path / "long.png", scores=[{"subject_size": (0.1, 0.6)}])
    contact_sheet([(CAPTION, *pair[1:])], tmp_path / "short.png")
    with Image.open(tmp_path / "long.png") as long, Image.open(tmp_path / "short.png") as short:
        assert long.width == short.width
        assert 0 < long.height - short.height < 60
        right_margin = np.asarray(long.convert("L"))[:, -20:]
    assert right_margin.min() == 255  # nothing runs off the edge


def test_one_frame_is_enough(tmp_path: Path) -> None:
    contact_sheet([(CAPTION, video((1, 1, 1), frames=1), video((2, 2, 2), frames=1))], tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").exists()


def test_a_sheet_of_nothing_or_of_unequal_videos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one pair"):
        contact_sheet([], tmp_path / "sheet.png")
    with pytest.raises(InputError, match="same shape"):
        contact_sheet([(CAPTION, video((1, 1, 1)), video((1, 1, 1), frames=5))], tmp_path / "sheet.png")


def test_the_chart_draws_a_run_and_differs_with_it(tmp_path: Path) -> None:
    for name, updates in (("long", 12), ("short", 5)):
        write_run(tmp_path / name, updates)
        chart(tmp_path / name, tmp_path / name / "chart.png")
    with Image.open(tmp_path / "long" / "chart.png") as image:
        assert image.format == "PNG"
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    assert (tmp_path / "long" / "chart.png").read_bytes() != (tmp_path / "short" / "chart.png").read_bytes()


def test_charts_are_drawn_in_threads_without_pyplot(tmp_path: Path) -> None:
    import sys

    write_run(tmp_path)
    threads = [threading.Thread(target=chart, args=(tmp_path, tmp_path / f"{n}.png")) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(tmp_path / f"{n}.png").read_bytes() for n in range(3)}) == 1
    assert "matplotlib.pyplot" not in sys.modules


def test_a_chart_of_a_run_that_recorded_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train first"):
        chart(tmp_path, tmp_path / "chart.png")


def test_smoothing_keeps_a_constant_and_has_no_start_up_bias() -> None:
    assert smooth([2.0] * 5) == pytest.approx([2.0] * 5)
    assert smooth([1.0, 0.0])[0] == pytest.approx(1.0)
    assert smooth([]) == []


def render(table: Any) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_lists_optimised_rewards_first_with_their_figures() -> None:
    text = render(final_table(summary()))
    assert text.index("subject_size") < text.index("sharpness")
    row = next(line for line in text.splitlines() if "subject_size" in line)
    for part in ("optimised", "0.129 → 0.600", "+0.471", "+0.430 to +0.510", "95 %"):
        assert part in row
    assert "-0.020 to +0.005" in text


def test_figures_that_are_missing_read_as_dashes() -> None:
    empty = {"before": None, "after": None, "gain": None, "ci95": [None, None], "win_rate": None}
    text = render(final_table(summary(heldout={"subject_size": empty})))
    assert "- → -" in text


def test_the_footer_says_cost_time_and_files(tmp_path: Path) -> None:
    lines = footer_lines(summary(), tmp_path)
    assert "100 updates in 8.2 minutes" in lines[0]
    assert "81,234" in lines[0]
    assert "best after update 80" in lines[0]
    assert f"contact sheet: {tmp_path / 'contact_sheet.png'}" in lines
