"""A short chaos; the long one is benchmarks/chaos.py."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import OVERRIDES, judge, rage, running_studio, submit, tagged, wait_for_end


def test_every_job_ends_once_whatever_part_is_killed(tmp_path: Path) -> None:
    with running_studio(tmp_path / "workspace", "--slots", "2") as studio:
        ids = submit(studio, 3, {**OVERRIDES, "updates": 6})
        rage(studio, ids, kills=8, seed=3, pauses=(0.5, 4.0))
        wait_for_end(studio, ids, 300)
        outcome = judge(studio, ids, 6)
        assert outcome.problems == []
        assert (outcome.ended_once, outcome.lost, outcome.duplicated) == (3, 0, 0)
        assert set(outcome.kills) == {"worker", "web app", "broker", "training"}
        assert max(outcome.updates_lost, default=0) <= OVERRIDES["checkpoint_every"]
        # The judge can tell: a measurement taken away, and a run that told its end twice, do not pass.
        log = studio.workspace.run(ids[0]) / "events.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if '"type": "metrics", "update": 3,' not in line))
        assert any("in its log" in problem for problem in judge(studio, ids, 6).problems)
        done = next(line for line in lines if '"status": "done"' in line)
        log.write_text("".join([*lines, done.replace('"seq": ', '"seq": 9')]))
        assert any("exactly once" in problem for problem in judge(studio, ids, 6).problems)
    assert tagged(ids) == []
