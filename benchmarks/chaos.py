"""Kill the parts of a running studio at seeded random moments, and count what became of its jobs.

    python -m benchmarks.chaos [--jobs 20] [--kills 40] [--seed 0] [--updates 8] [--slots 2]

Everything is real: the studio command with its embedded broker, web app and worker, and a training process per job.
Worker, web app, broker and training get SIGKILLs in turn. Exits 1 unless every job ended once, equal to the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import OVERRIDES, judge, rage, running_studio, states, submit, tagged, wait_for_end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--pauses", type=float, nargs=2, default=(2.0, 8.0), metavar="SECONDS")
    arguments = parser.parse_args()
    overrides = {**OVERRIDES, "updates": arguments.updates}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        with running_studio(Path(name) / "workspace", "--slots", str(arguments.slots)) as studio:
            ids = submit(studio, arguments.jobs, overrides)
            rage(studio, ids, arguments.kills, arguments.seed, tuple(arguments.pauses))
            raged = time.monotonic() - began
            ended_early = all(state == "succeeded" for state in states(studio, ids).values())
            wait_for_end(studio, ids, 1800)
            outcome = judge(studio, ids, arguments.updates)
        left = [process.pid for process in tagged(ids)]
    result = dataclasses.asdict(outcome)
    result |= {"processes_left_after_stop": left, "seconds": round(time.monotonic() - began)}
    result |= {"seconds_of_kills": round(raged), "jobs_ended_before_all_kills": ended_early}
    print(json.dumps(result, indent=1))
    good = outcome.ended_once == arguments.jobs and not outcome.problems and not left
    sys.exit(0 if good and sum(outcome.kills.values()) >= arguments.kills else 1)


if __name__ == "__main__":
    main()
