"""Sides, their videos joined into pairs, gains with intervals, and what keeps two videos from being compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select, true, update

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs.access import Actor, visible
from flash_grpo_studio.app.store.intervals import Z95, mean_interval, student_t, wilson
from flash_grpo_studio.app.store.pairs import Comparison, Pairs, key_of
from flash_grpo_studio.app.store.sides import Side, sides_of
from flash_grpo_studio.app.store.tables import Checkpoint, Job, Video
from tests.sides import prompts, put_preview, put_run, put_videos
from tests.studio import Parts

TEXTS = prompts(4)


def rising(update: int, place: int) -> dict[str, float]:
    """Alignment gains 1, 2, 3 and 4 on the four prompts in `sharpness`, and nothing in `flicker`."""
    return {"sharpness": place + (place + 1.0) * (update > 0), "flicker": 0.5}


def read(parts: Parts, before: str, after: str, actor: Actor | None = None, pairs: Pairs | None = None) -> Comparison:
    with parts.store.reading() as session:
        seen = visible(actor, Job) if actor else true()
        return (pairs or Pairs()).read(session, Side.parse(before), Side.parse(after), seen)


def run_of(parts: Parts, **more: Any) -> str:
    run = put_run(parts.store, parts.ann.user_id, **more)
    put_videos(parts.store, parts.ann.user_id, run, TEXTS, scores=rising)
    return run


def codes(found: Comparison) -> list[list[str]]:
    """Codes of the differences of the runs, then of each pair."""
    return [[d.code for d in group] for group in (found.differences, *(pair.differences for pair in found.pairs))]


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("ab@0", Side("ab", 0)),
        ("ab@40", Side("ab", 40)),
        ("ab@40*0.5", Side("ab", 40, 0.5)),
        ("ab@40*0", Side("ab", 40, 0.0)),
        ("ab@40*2", Side("ab", 40, 2.0)),
        ("ab@7*1e-05", Side("ab", 7, 1e-05)),
        ("ab@7*0.30000000000000004", Side("ab", 7, 0.1 + 0.2)),
    ],
)
def test_a_side_is_a_text_and_back(text: str, side: Side) -> None:
    assert (Side.parse(text), str(side)) == (side, text)


def test_strength_one_is_not_written() -> None:
    assert str(Side.parse("ab@40*1.0")) == "ab@40"


NO_SIDES = "|ab|@4|ab@|ab@-1|xy@4|ab@4*5|ab@4*-1|ab@4*nan|ab@0*0.5|ab@4*|ab@9999999999|ab@4 |ab@\u0664|ab@4*1e999"


@pytest.mark.parametrize("text", [*NO_SIDES.split("|"), "a" * 33 + "@4"])
def test_what_is_no_side_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"^(expected a|update 0)"):
        Side.parse(text)


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (5, 2.571), (10, 2.228), (11, 2.201), (30, 2.042), (120, 1.980)]
)
def test_student_t_as_in_tables(freedom: int, value: float) -> None:
    assert student_t(freedom) == pytest.approx(value, abs=6e-4)


def test_the_interval_of_a_mean_in_closed_form() -> None:
    low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0])) or (0, 0)
    reach = 3.18245 * np.sqrt(5 / 3) / 2
    assert [low, high] == pytest.approx([2.5 - reach, 2.5 + reach], abs=1e-4)
    assert mean_interval(np.array([1.0])) is None


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    samples = np.random.default_rng(0).normal(size=(4000, 5))
    held = np.mean([low <= 0 <= high for low, high in map(mean_interval, samples)])  # type: ignore[misc]
    assert held == pytest.approx(0.95, abs=0.012)
    narrow = Z95 * samples.std(axis=1, ddof=1) / np.sqrt(5)  # what ignores that the spread is estimated too
    assert np.mean(np.abs(samples.mean(axis=1)) <= narrow) < 0.9


@pytest.mark.parametrize(
    ("hits", "count", "interval"),
    [
        (8, 10, (0.4902, 0.9433)),
        (0, 10, (0.0, 0.2775)),
        (10, 10, (0.7225, 1.0)),
        (50, 100, (0.4038, 0.5962)),
        (1, 1, (0.2065, 1.0)),
    ],
)
def test_wilson_as_in_tables(hits: int, count: int, interval: tuple[float, float]) -> None:
    assert wilson(hits, count) == pytest.approx(interval, abs=1e-4)
    assert wilson(0, 0) is None


def test_gains_of_a_run_over_its_base(parts: Parts) -> None:
    run = run_of(parts)
    found = read(parts, f"{run}@0", f"{run}@4")
    assert [pair.before.prompt for pair in found.pairs] == TEXTS
    gains = {gain.name: gain for gain in found.gains}
    gain = gains["sharpness"]
    assert (gain.before, gain.after, gain.gain, gain.win_rate, gain.pairs) == (1.5, 4.0, 2.5, 1.0, 4)
    assert gain.ci95 == pytest.approx((0.4458, 4.5542), abs=1e-3)
    assert (gains["flicker"].gain, gains["flicker"].win_rate) == (0.0, 0.5)
    assert codes(found) == [[], [], [], [], []]
    assert (found.before.videos, found.after.videos) == (4, 4)


def test_order_and_search(parts: Parts) -> None:
    run = run_of(parts)
    with parts.store.writing() as session:
        session.execute(update(Video).where(Video.prompt == TEXTS[1], Video.update == 4).values(scores={}))
    found = read(parts, f"{run}@0", f"{run}@4")
    assert found.picked("-gain", "sharpness").tolist() == [3, 2, 0, 1]
    assert found.picked("gain", "sharpness").tolist() == [0, 2, 3, 1]
    assert found.picked("prompt", None).tolist() == [0, 1, 2, 3]
    assert found.picked("-gain", "sharpness", "NUMBER 00003").tolist() == [3]
    assert found.picked("-gain", None, "no such prompt").tolist() == []
    assert found.place == {key_of(text, 0): place for place, text in enumerate(TEXTS)}


def test_previews_join_by_prompt_and_seed_and_the_newest_wins(parts: Parts) -> None:
    run, owner = run_of(parts), parts.ann.user_id
    preview = put_preview(parts.store, owner, run, shared=True)
    again: dict[str, Any] = {"created": 2e9, "prompt_id": "prompt-000"}
    put_videos(parts.store, owner, preview, ["a new prompt", TEXTS[2]], strength=1.0, **again)
    put_videos(parts.store, owner, preview, ["weak"], [4], strength=0.5, path="weak.mp4")
    put_videos(parts.store, owner, preview, ["weak"], [0], path="weak0.mp4")
    found = read(parts, f"{run}@0", f"{run}@4")
    by_prompt = {pair.before.prompt: pair for pair in found.pairs}
    assert sorted(by_prompt) == sorted([*TEXTS, "a new prompt"])
    assert by_prompt[TEXTS[2]].before.job_id == by_prompt[TEXTS[2]].after.job_id == preview
    assert by_prompt[TEXTS[1]].after.job_id == run
    assert [pair.before.prompt for pair in read(parts, f"{run}@0", f"{run}@4*0.5").pairs] == ["weak"]
    assert read(parts, f"{run}@0", f"{run}@4*0.7").pairs == []
    with parts.store.reading() as session:
        sides = sides_of(session, {run: "alignment"}, true())[0]
    assert [str(side) for side in sides.shown()] == [f"{run}@0", f"{run}@4", f"{run}@4*0.5"]
    assert str(sides.aligned()) == f"{run}@4"


def test_others_previews_are_no_pairs_unless_shared(parts: Parts) -> None:
    run = run_of(parts, shared=True)
    preview = put_preview(parts.store, parts.ann.user_id, run)
    put_videos(parts.store, parts.ann.user_id, preview, ["ann's secret"])
    bob, pairs = parts.user("bob"), Pairs()

    def count(actor: Actor) -> int:
        return len(read(parts, f"{run}@0", f"{run}@4", actor, pairs).pairs)

    assert (count(parts.ann), count(bob), count(parts.ann)) == (5, 4, 5)
    assert [pair.private for pair in read(parts, f"{run}@0", f"{run}@4", parts.ann, pairs).pairs].count(True) == 1
    parts.service.edit(parts.ann, preview, {"shared": True})
    assert count(bob) == 5
    assert not any(pair.private for pair in read(parts, f"{run}@0", f"{run}@4", parts.ann, pairs).pairs)


RENDERED_OTHERWISE: list[tuple[dict[str, Any], str]] = [
    ({"evaluation_steps": 30}, "steps"),
    ({"guidance_scale": 5.0}, "guidance_scale"),
    ({"evaluation_guidance_scale": 5.0}, "guidance_scale"),
    ({"shift": 3.0}, "shift"),
    ({"negative_prompt": "blurry"}, "negative_prompt"),
    ({"width": 48}, "width"),
    ({"frames": 13}, "frames"),
    ({"fps": 9.0}, "fps"),
]


def test_runs_that_render_otherwise_have_no_gains(parts: Parts) -> None:
    one = run_of(parts)
    for config, code in RENDERED_OTHERWISE:
        other = run_of(parts, config=config)
        found = read(parts, f"{one}@0", f"{other}@4")
        assert codes(found) == [[code], [], [], [], []]
        assert [(gain.gain, gain.ci95, gain.win_rate) for gain in found.gains] == [(None, None, None)] * 2, config
        assert [gain.after for gain in found.gains if gain.name == "sharpness"] == [4.0]
    assert codes(read(parts, f"{one}@0", f"{run_of(parts)}@4"))[0] == []  # a run like it, rendered alike


def test_rewards_measured_with_other_options_have_no_gains(parts: Parts) -> None:
    rewards = {"rewards": {"subject_size": 1.0, "text_rendering": 0.0}}
    one = run_of(parts, config=rewards)
    other = run_of(parts, config={**rewards, "reward_options": {"text_rendering": {"frames": 3}}})
    assert codes(read(parts, f"{one}@0", f"{other}@4"))[0] == ["rewards"]
    assert codes(read(parts, f"{one}@0", f"{one}@4"))[0] == []


def test_noise_is_the_same_only_where_it_is_known_to_be(parts: Parts) -> None:
    one, other = run_of(parts), run_of(parts)
    assert codes(read(parts, f"{one}@0", f"{other}@4")) == [[], [], [], [], []]
    with parts.store.writing() as session:
        session.execute(update(Video).where(Video.job_id == other, Video.prompt == TEXTS[0]).values(noise=2**63 - 1))
        session.execute(update(Video).where(Video.job_id == other, Video.prompt == TEXTS[1]).values(noise=None))
        session.execute(update(Video).where(Video.job_id == one, Video.prompt == TEXTS[2]).values(noise=None))
        session.execute(update(Video).where(Video.job_id == other, Video.prompt == TEXTS[2]).values(noise=None))
    found = read(parts, f"{one}@0", f"{other}@4")
    assert codes(found) == [[], ["noise"], ["noise"], ["noise"], []]
    assert vars(found.pairs[0].differences[0]) == {"code": "noise", "before": "0", "after": str(2**63 - 1)}
    assert {gain.name: (gain.gain, gain.pairs) for gain in found.gains}["sharpness"] == (4.0, 1)
    within = read(parts, f"{other}@0", f"{other}@4")  # older rows of one run started from one noise
    assert codes(within) == [[], [], [], [], []]


def test_a_preview_rendered_otherwise_is_told_of_its_pairs(parts: Parts) -> None:
    run, owner = run_of(parts), parts.ann.user_id
    result = {"steps": 50, "sampler": "UniPC", "fps": 8.0}
    preview = put_preview(parts.store, owner, run, result=result)
    put_videos(parts.store, owner, preview, TEXTS[:1], [4], created=2e9)
    found = read(parts, f"{run}@0", f"{run}@4")
    assert codes(found) == [[], ["steps"], [], [], []]
    assert np.isnan(found.differences_of_scores("sharpness")).tolist() == [True, False, False, False]


def test_what_is_kept_follows_the_store(parts: Parts) -> None:
    run, pairs = run_of(parts), Pairs()

    def now() -> Comparison:
        return read(parts, f"{run}@0", f"{run}@4", parts.ann, pairs)

    first = now()
    assert now() is first, "nothing changed, and it was joined again"
    changes: list[Any] = [
        update(Video).where(Video.prompt == TEXTS[0], Video.update == 4).values(scores={"sharpness": 9.0}),
        delete(Video).where(Video.prompt == TEXTS[3], Video.update == 0),
    ]
    for change in changes:
        with parts.store.writing() as session:
            session.execute(change)
        assert now() is not first, change
        first = now()
    with parts.store.writing() as session:
        row = session.scalars(select(Video).where(Video.prompt == TEXTS[1], Video.update == 4)).one()
        row.scores = {**row.scores, "motion": 1.0}  # as a scoring job does
    assert "motion" in now().rewards
    put_videos(parts.store, parts.ann.user_id, run, ["one more"], path="more.mp4", updates=[0])
    assert now().before.videos == 4
    with parts.store.writing() as session:
        session.execute(update(Checkpoint).values(best=False))
    kept = now()
    assert now() is kept


def test_memory_kept_for_comparisons_is_limited(parts: Parts) -> None:
    run, pairs = run_of(parts), Pairs(most=6)
    for update_ in (1, 2, 3):
        put_videos(parts.store, parts.ann.user_id, run, TEXTS, [update_])
        read(parts, f"{run}@0", f"{run}@{update_}", parts.ann, pairs)
    assert sum(len(kept.pairs) for _, kept in pairs._kept.values()) == 4
