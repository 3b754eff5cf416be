"""Everything a run works with: folder, events, model, prompts, rewards, sampler, requests from outside, summary."""

from __future__ import annotations

import json
import logging
import platform
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from flash_grpo.checkpoint import load_weights, put_weights, read_pointer
from flash_grpo.config import RunConfig, dump_config, load_config
from flash_grpo.distributed import Runtime
from flash_grpo.errors import InputError
from flash_grpo.evaluate import EvaluationResult, EvaluationSet, compare, evaluate, save_videos
from flash_grpo.events import Event, EventLog, Failed, Finished, Progress, RunStarted, read_events
from flash_grpo.files import write_atomic
from flash_grpo.models.registry import load_model
from flash_grpo.prompts import Prompt, load_prompts
from flash_grpo.report import chart, contact_sheet
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter, build_sampler
from flash_grpo.schedule import draw_prompts

PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "peft", "safetensors")


class Interrupted(Exception):
    """The run stopped because it was asked to; `status` is `interrupted` or `paused`."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the run was {status}")
        self.status = status


class Requests:
    """What signals asked of the run: nothing yet, or the status it shall end with."""

    asked: str | None = None


class Run:
    """One run's surroundings; made by `open_run`."""

    def __init__(
        self, config: RunConfig, folder: Path, preset: str | None, log: EventLog, requests: Requests | None = None
    ) -> None:
        self.config, self.folder, self.preset, self.log = config, folder, preset, log
        self.started = time.monotonic()
        self.meter = Meter()
        self.requests = requests or Requests()
        self.rewards = RewardSet(config.rewards, config.reward_options)
        train, validation, heldout = _load_prompt_sets(config)
        self.train_prompts = train
        self.runtime = Runtime(config, folder)
        self.model = load_model(config, self.runtime.device)
        self.sampler = build_sampler(config, self.model)
        used = _prompts_used(config, len(train))
        self.train_embedding = {prompt: row for row, prompt in enumerate(used)}
        self.prompt_of_embedding: Sequence[Prompt] = [train[index] for index in used] + validation + heldout
        self.validation = EvaluationSet("validation", validation, len(used))
        self.heldout = EvaluationSet("heldout", heldout, len(used) + len(validation))
        self.emit(Progress("setup", 0, config.updates, 0.0))
        self.embeddings = self.model.encode_prompts([p.text for p in self.prompt_of_embedding], config.negative_prompt)
        self.model.free_text_encoder()
        self._make_trainable()

    def _make_trainable(self) -> None:
        config = self.config
        torch.manual_seed(config.seed)
        if config.adapter == "lora":
            self.model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, config.lora_init)
        else:
            self.model.train_all(keep_base=config.kl_weight > 0)
        if config.gradient_checkpointing:
            self.model.enable_gradient_checkpointing()

    def emit(self, event: Event) -> None:
        """Write an event; only the main process speaks."""
        if self.runtime.is_main:
            self.log.emit(event)

    def out_of_time(self) -> bool:
        """Whether the run's minutes are spent."""
        return self.config.minutes is not None and time.monotonic() - self.started > self.config.minutes * 60

    def obey_requests(self) -> None:
        """Raise `Interrupted` if a signal or a file in RUN/control asked the run to stop or pause."""
        for file, status in (("stop", "interrupted"), ("pause", "paused")):
            if self.requests.asked is None and (self.folder / "control" / file).exists():
                self.requests.asked = status
        if self.requests.asked is not None:
            raise Interrupted(self.requests.asked)

    def finish(self, updates: int, shown: int, before: EvaluationResult, after: EvaluationResult) -> dict[str, Any]:
        """Write contact sheet, chart and summary.json; returns the summary."""
        summary = self.summary("done", updates, **self.compared(shown, before, after))
        self.emit(Finished("done", f"Trained {updates} updates in {summary['minutes']:.1f} minutes."))
        return summary

    def compared(self, shown: int, before: EvaluationResult, after: EvaluationResult) -> dict[str, Any]:
        """Write contact sheet and chart; returns the summary's part that says what checkpoint `shown` reached."""
        files = {
            "chart": "chart.png",
            "contact_sheet": "contact_sheet.png",
            "adapter": f"checkpoints/{shown:06d}",
            "videos_before": "videos/000000",
            "videos_after": f"videos/{shown:06d}",
        }
        if self.runtime.is_main:
            captions = [prompt.text for prompt in self.heldout.prompts]
            if pairs := list(zip(captions, before.videos, after.videos, strict=False)):
                contact_sheet(pairs, self.folder / files["contact_sheet"])
            chart(self.folder, self.folder / files["chart"])
        return {"heldout": compare(before.scores, after.scores), "best_update": shown, "files": files}

    def summary(self, status: str, updates: int, **more: Any) -> dict[str, Any]:
        """Write summary.json with what is known, and return it."""
        content: dict[str, Any] = {
            "status": status,
            "preset": self.preset,
            "seed": self.config.seed,
            "updates": updates,
            "nfe": self.meter.nfe,
            "cost": self.meter.cost,
            "minutes": (time.monotonic() - self.started) / 60,
            "rewards": self.config.rewards,
            **more,
        }
        if self.runtime.is_main:
            write_atomic(self.folder / "summary.json", json.dumps(content, indent=1))
        return content


def _load_prompt_sets(config: RunConfig) -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
    train = load_prompts(config.prompts, None)
    validation = load_prompts(config.validation_prompts, config.validation_limit)
    heldout = load_prompts(config.heldout_prompts, config.heldout_limit)
    texts = {p.text for p in train}
    for key, prompts in (("validation_prompts", validation), ("heldout_prompts", heldout)):
        shared = [p.text for p in prompts if p.text in texts]
        if shared:
            raise InputError(
                f"{key} holds {len(shared)} prompts that are trained on, such as {shared[0]!r}; remove them"
            )
        texts.update(p.text for p in prompts)
    return train, validation, heldout


def _prompts_used(config: RunConfig, available: int) -> list[int]:
    """Indices of the training prompts that this run will draw, each once."""
    drawn: dict[int, None] = {}
    for update in range(config.updates):
        drawn.update(dict.fromkeys(draw_prompts(config.seed, update, config.prompts_per_update, available)))
        if len(drawn) == available:
            break
    return list(drawn)


def _versions() -> Mapping[str, str]:
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **versions}


SET_UP_FILES = {"config.yaml", "events.jsonl", "log.txt", "control"}


def claim_folder(folder: Path) -> None:
    """Make sure a run folder is new and can be written; InputError otherwise.

    What a run left that was refused while it was set up is no obstacle, and is cleared away.
    """
    if folder.exists() and (not folder.is_dir() or not {entry.name for entry in folder.iterdir()} <= SET_UP_FILES):
        raise InputError(f"the output folder {folder} is not empty; choose another with --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SET_UP_FILES - {"control"}:
            (folder / name).unlink(missing_ok=True)
        (folder / "control").mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the output folder {folder}: {error.strerror}; choose another") from error


@contextmanager
def open_run(
    config: RunConfig, folder: Path, preset: str | None, subscribers: Sequence[Callable[[Event], None]]
) -> Iterator[Run]:
    """Set a run up in a fresh folder, and see that however it ends, events and summary say so."""
    claim_folder(folder)
    write_atomic(folder / "config.yaml", dump_config(config))
    if config.threads:
        torch.set_num_threads(config.threads)
    run: Run | None = None
    with _log_to(folder / "log.txt") as logger, EventLog(folder) as log, _signals() as requests:
        for subscriber in subscribers:
            log.subscribe(subscriber)
        log.emit(RunStarted(config.model_dump(), _versions(), preset))
        try:
            run = Run(config, folder, preset, log, requests)
            yield run
        except Interrupted as stop:
            log.emit(Finished(stop.status, f"The run was {stop.status}; its last checkpoint is kept."))
            assert run is not None
            run.summary(stop.status, _updates_done(folder))
            raise
        except Exception as error:
            logger.error("%s", traceback.format_exc())
            message = str(error) or type(error).__name__
            log.emit(Failed(message))
            if run is not None:
                run.summary("failed", _updates_done(folder), error=message)
            raise
        finally:
            if run is not None:
                run.runtime.close()


def evaluate_run(folder: Path) -> dict[str, Any]:
    """Repeat the held-out comparison of a run's best checkpoint with its base model.

    Rewrites videos, contact sheet, chart and the comparison in the summary; what the training cost stays as it was.
    """
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} is no run folder: it holds no config.yaml; name the folder that train wrote")
    checkpoint = read_pointer(folder, "best") or read_pointer(folder, "latest")
    if checkpoint is None:
        raise InputError(f"the run {folder} has no checkpoint yet; train it first")
    config = load_config(folder / "config.yaml")
    if config.threads:
        torch.set_num_threads(config.threads)
    with EventLog(folder) as log:
        run = Run(config, folder, None, log)
        keep = config.videos_saved
        parts = run.model, config, run.rewards, run.embeddings, run.heldout, run.meter
        before = evaluate(*parts, keep_videos=keep)  # a fresh adapter changes nothing: this is the base model
        put_weights(dict(run.model.trainable()), load_weights(checkpoint))
        after = evaluate(*parts, keep_videos=keep)
        for update, result in ((0, before), (int(checkpoint.name), after)):
            save_videos(folder, update, run.heldout.prompts, result.videos, config.fps)
        # A run that was killed has left no summary.
        known = read_summary(folder) or run.summary("interrupted", _updates_done(folder))
        summary = {**known, **run.compared(int(checkpoint.name), before, after)}
        write_atomic(folder / "summary.json", json.dumps(summary, indent=1))
        run.runtime.close()
        return summary


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None."""
    file = folder / "summary.json"
    summary: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return summary


def _updates_done(folder: Path) -> int:
    return max((r.update or 0 for r in read_events(folder) if r.type == "metrics"), default=0)


@contextmanager
def _log_to(path: Path) -> Iterator[logging.Logger]:
    """Within this context all warnings and errors of the process are also written to a file."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield logging.getLogger(__name__)
    finally:
        root.removeHandler(handler)
        handler.close()


@contextmanager
def _signals() -> Iterator[Requests]:
    """SIGINT and SIGTERM ask the run to stop where it can; outside the main thread they are left alone."""
    requests = Requests()

    def ask(number: int, frame: FrameType | None) -> None:
        requests.asked = "interrupted"

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are the owner's business
        previous = {}
    try:
        yield requests
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
