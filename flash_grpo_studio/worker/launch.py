"""From a claim to a process: its folder, its command as a list of arguments, and the environment it sees."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from flash_grpo.config import RunConfig, dump_config, load_config
from flash_grpo.errors import InputError
from flash_grpo.files import write_atomic
from flash_grpo.ownership import read_owner
from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.devices import environment as device_environment
from flash_grpo_studio.worker.processes import ATTEMPT_TAG, JOB_TAG, STUDIO_TAG, Found, alive, birth

SECRETS = ("FLASH_GRPO_DATABASE_URL", "FLASH_GRPO_BROKER_URL")
"""What a run has no business with: rewards may be anybody's code."""
LAUNCH_FILE, OUTPUT_FILE, OLD_OUTPUT_FILE = "launch.json", "output.txt", "output-before.txt"
SHUTDOWN_FILE = "shutdown"
"""Says that the worker asked the run to end for its own sake: if it dies before it gives the job back, the next worker
must not take this for a person's wish.
"""
OUTPUT_BYTES = 8 * 2**20
"""A run's output is moved aside beyond this size, so that one that talks without end fills no disk."""


@dataclass(frozen=True)
class Ground:
    """Where a worker's runs live: the workspace and its token, this machine's name, and how many devices share it."""

    workspace: Workspace
    studio: str
    host: str
    slots: int = 1


Commands = Callable[[Ground, Claim], list[str]]
"""What to start for a claim; tests put scripted processes in its place."""


@dataclass(frozen=True)
class LaunchRecord:
    """attempts/N/launch.json: which process an attempt has, and where in events.jsonl its own words begin."""

    attempt: int
    pid: int
    born: float
    events_from: int
    command: list[str]


def folder_of(ground: Ground, claim: Claim) -> Path:
    """The job's folder, the working directory of its processes."""
    return ground.workspace.inside(claim.folder)


def speaks_in(ground: Ground, claim: Claim) -> Path:
    """The folder in which its events.jsonl grows."""
    return folder_of(ground, claim) / ("run" if claim.kind == "alignment" else "report")


def attempt_folder(ground: Ground, claim: Claim, attempt: int | None = None) -> Path:
    """What an attempt leaves beside the run: its output, and how it was launched."""
    return folder_of(ground, claim) / "attempts" / str(attempt or claim.attempt)


def prepare_folder(ground: Ground, claim: Claim) -> None:
    """Write what the command reads: the configuration and prompts of an alignment, the prompts of other kinds."""
    folder = folder_of(ground, claim)
    for name, rows in claim.spec.get("files", {}).items():
        _write_lines(folder / Path(name).name, rows)
    task = claim.spec.get("task", {})
    if claim.kind == "alignment":
        write_atomic(folder / "config.yaml", dump_config(RunConfig(**claim.spec["config"])))
    elif claim.kind == "preview":
        rows = [{"id": f"prompt-{number:03d}", "prompt": text} for number, text in enumerate(task["prompts"])]
        _write_lines(folder / "prompts.jsonl", rows)
    elif claim.kind == "scoring":
        prompts = {str(ground.workspace.inside(video["path"])): video["prompt"] for video in task["videos"]}
        write_atomic(folder / "prompts.json", json.dumps(prompts, ensure_ascii=False))
    elif claim.kind in ("composition", "contact_sheet"):
        sides = ("left", "right")
        pairs = [
            {**pair, **{side: str(ground.workspace.inside(pair[side])) for side in sides}} for pair in task["pairs"]
        ]
        write_atomic(folder / "pairs.json", json.dumps(pairs, ensure_ascii=False))


def _write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_atomic(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def command_for(ground: Ground, claim: Claim) -> list[str]:
    """The command line of a claim, one argument per item; no shell ever sees it."""
    arguments = _alignment(ground, claim) if claim.kind == "alignment" else _task(ground, claim)
    if len(claim.devices) > 1:
        count = str(len(claim.devices))
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
        return [sys.executable, *launcher, "-m", "flash_grpo.cli", *arguments]
    return [sys.executable, "-m", "flash_grpo.cli", *arguments]


def _alignment(ground: Ground, claim: Claim) -> list[str]:
    run = folder_of(ground, claim) / "run"
    if not (run / "config.yaml").is_file():
        return ["train", "--config", "config.yaml", "--output", "run"]
    arguments = ["resume", "run"]
    for key, value in changed_keys(RunConfig(**claim.spec["config"]), run / "config.yaml").items():
        arguments += ["--set", f"{key}={flow_yaml(value)}"]
    if left_behind(run):
        arguments.append("--take-over")
    return arguments


def is_done(ground: Ground, claim: Claim) -> bool:
    """Whether an alignment has trained all it was asked to, so that there is nothing to start: its worker, and whoever
    else could have told the store, was gone when it ended.
    """
    run = folder_of(ground, claim) / "run"
    if claim.kind != "alignment" or not (run / "config.yaml").is_file():
        return False
    try:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        trained = load_config(run / "config.yaml").updates
    except (OSError, ValueError):
        return False
    done = isinstance(summary, dict) and summary.get("status") == "done"
    return done and bool(claim.spec["config"]["updates"] <= trained)


def changed_keys(wanted: RunConfig, present: Path) -> dict[str, Any]:
    """What the job's configuration says otherwise than the run's own, as after an edit."""
    before = load_config(present).model_dump(mode="json")
    return {key: value for key, value in wanted.model_dump(mode="json").items() if before.get(key) != value}


def flow_yaml(value: Any) -> str:
    """A value as YAML on one line; unlike JSON, it writes small numbers so that YAML reads numbers."""
    return yaml.safe_dump([value], default_flow_style=True, width=10**9, allow_unicode=True).strip()[1:-1]


def left_behind(run: Path) -> bool:
    """Whether the folder's lock names an owner whom only the store knows to be out: on another machine, or a process
    that is dead and only was not reaped. Whoever holds the claim of the job may take the run from it.
    """
    owner = read_owner(run)
    if owner is None or owner.released:
        return False
    return owner.host != socket.gethostname() or (owner.alive() is True and birth(owner.process) is None)


def _task(ground: Ground, claim: Claim) -> list[str]:
    task, inside = claim.spec["task"], ground.workspace.inside
    report = ["--report", "report"]
    if claim.kind == "evaluation":
        return ["evaluate", *report, "--", str(inside(task["run"]))]
    if claim.kind == "preview":
        seeds = [part for seed in task["seeds"] for part in ("--seed", str(seed))]
        chosen = ["--side", task["side"], "--checkpoint", task["checkpoint"], "--strength", str(task["strength"])]
        named = ["--prompts", "prompts.jsonl", "--output", "videos"]
        return ["render", *named, *seeds, *chosen, *report, "--", str(inside(task["run"]))]
    if claim.kind == "scoring":
        rewards = [f"--reward={name}" for name in task["rewards"]]
        options = [f"--options={json.dumps(task['reward_options'])}"] if task["reward_options"] else []
        videos = dict.fromkeys(str(inside(video["path"])) for video in task["videos"])
        return ["score", *rewards, *options, "--prompts", "prompts.json", "--keep-going", *report, "--", *videos]
    if claim.kind == "normalisation":
        wishes = ["--max-side", str(task["max_side"])]
        if task["fps"] is not None:
            wishes += ["--fps", str(task["fps"])]
        return ["normalise", "--output", "video.mp4", *wishes, *report, "--", str(inside(task["path"]))]
    if claim.kind == "export":
        chosen = ["--format", task["format"], "--checkpoint", task["checkpoint"], "--output", "export"]
        chosen += [f"--name={task['name']}"] if task.get("name") else []
        return ["export", *chosen, *report, "--", str(inside(task["run"]))]
    if claim.kind == "composition":
        return _composition(task, report)
    if claim.kind == "contact_sheet":
        labels = [f"--label={label}" for label in task["labels"]]
        return ["contact-sheet", "--pairs", "pairs.json", "--output", "contact_sheet.png", *labels, *report]
    if claim.kind == "push":
        seen = "--private" if task["private"] else "--public"
        return ["push", f"--repo={task['repo']}", seen, *report, "--", str(inside(task["export"]))]
    if claim.kind == "download":
        return _download(ground, claim)
    raise InputError(f"this version of the worker does not know jobs of kind {claim.kind!r}; update it")


def _composition(task: Mapping[str, Any], report: list[str]) -> list[str]:
    labels = [f"--label={label}" for label in task["labels"]]
    wishes = [f"--{key}={task[key]}" for key in ("layout", "fps", "width") if task[key] is not None]
    files = ["--pairs", "pairs.json", "--output", f"composition.{task['format']}"]
    return ["compose", *files, *labels, *wishes, *report]


def _download(ground: Ground, claim: Claim) -> list[str]:
    task = claim.spec["task"]
    output = ground.workspace.folder / "models" / download_folder(task)
    revision = [f"--revision={task['revision']}"] if task["revision"] else []
    chosen = ["--output", str(output), *revision, "--kind", task["what"]]
    return ["download", *chosen, "--report", "report", "--", task["repo"]]


def download_folder(task: Mapping[str, Any]) -> str:
    """Where in the workspace's models/ a repository's files go: one folder for each revision that was asked for."""
    return model_name(task).replace("/", "--")


def model_name(task: Mapping[str, Any]) -> str:
    """What a downloaded model is called: OWNER/NAME, with @REVISION if one was asked for."""
    return f"{task['repo']}@{task['revision']}" if task["revision"] else str(task["repo"])


def environment(ground: Ground, claim: Claim) -> dict[str, str]:
    """What the processes of an attempt see; one that sends an export, its owner's hub token and nobody else's."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    tags = {JOB_TAG: claim.job_id, ATTEMPT_TAG: str(claim.attempt), STUDIO_TAG: ground.studio}
    plain = {
        "PYTHONUNBUFFERED": "1",  # the last words of a process that is killed are in its output
        "PYTHONSAFEPATH": "1",  # no file in the job's folder can stand in for a module
    }
    token = {"HF_TOKEN": hub_tokens.read(ground.workspace, claim.spec["task"]["user"])} if claim.kind == "push" else {}
    return {**kept, **device_environment(claim.devices, ground.slots), **plain, **tags, **token}


class RunProcess:
    """The leader of an attempt's processes: started here, or found alive and adopted, whose exit code nobody learns."""

    def __init__(self, pid: int, born: float, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.born, self._child = pid, born, child

    def ended(self) -> bool:
        """Whether the leader is gone."""
        if self._child is not None:
            return self._child.poll() is not None
        return not alive(self.pid, self.born)

    @property
    def exit_code(self) -> int | None:
        """The code of a child that ended, negative for a signal; None for an adopted process."""
        return self._child.returncode if self._child is not None else None

    def found(self) -> Found:
        """The leader as `processes` names it."""
        return Found(self.pid, self.born, self.pid)


def start(ground: Ground, claim: Claim, commands: Commands = command_for) -> RunProcess:
    """Write the folder and start the attempt's process, in a session of its own so that it outlives this worker.

    Output goes to a file, not a pipe, for the same reason. Raises InputError for what cannot be started.
    """
    try:
        prepare_folder(ground, claim)
        command = commands(ground, claim)
        folder = attempt_folder(ground, claim)
        folder.mkdir(parents=True, exist_ok=True)
        events = speaks_in(ground, claim) / "events.jsonl"
        events_from = events.stat().st_size if events.exists() else 0
        with (folder / OUTPUT_FILE).open("ab") as output:
            child = subprocess.Popen(
                command,
                cwd=folder_of(ground, claim),
                env=environment(ground, claim),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=True,
            )
    except (OSError, ValueError) as error:
        raise InputError(f"the job cannot be started: {error}") from error
    born = birth(child.pid) or 0.0
    record = LaunchRecord(claim.attempt, child.pid, born, events_from, command)
    with suppress(OSError):  # a full disk: the run will say so itself
        write_atomic(folder / LAUNCH_FILE, json.dumps(asdict(record), indent=1))
    return RunProcess(child.pid, born, child)


def note_shutdown(folder: Path) -> None:
    """Leave the mark that `SHUTDOWN_FILE` tells of."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SHUTDOWN_FILE).touch()


def read_launch(ground: Ground, claim: Claim, attempt: int | None = None) -> LaunchRecord | None:
    """How an attempt was launched; None if that was not written down."""
    try:
        text = (attempt_folder(ground, claim, attempt) / LAUNCH_FILE).read_text(encoding="utf-8")
        return LaunchRecord(**json.loads(text))
    except (OSError, ValueError, TypeError):
        return None


def trim_output(folder: Path, limit: int = OUTPUT_BYTES) -> None:
    """Move the output aside once it is long. The process goes on at the beginning, as it appends."""
    output = folder / OUTPUT_FILE
    with suppress(OSError):
        if output.stat().st_size > limit:
            with output.open("rb") as file:
                file.seek(-limit // 2, os.SEEK_END)
                (folder / OLD_OUTPUT_FILE).write_bytes(file.read())
            os.truncate(output, 0)


def last_output(folder: Path, size: int = 16_384) -> str:
    """The end of what an attempt printed."""
    try:
        with (folder / OUTPUT_FILE).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
