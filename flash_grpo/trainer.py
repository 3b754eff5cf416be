"""The loop: roll out, score, weigh, update, record, checkpoint, evaluate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from flash_grpo.attempt import open_run
from flash_grpo.checkpoint import (
    Restored,
    TrainerState,
    checkpoint_folder,
    load_weights,
    prune,
    put_weights,
    save_checkpoint,
    saved_updates,
    write_pointers,
)
from flash_grpo.collect import Collector, UpdateBatch
from flash_grpo.config import RunConfig
from flash_grpo.control import ENDINGS, Interrupted
from flash_grpo.errors import InputError
from flash_grpo.evaluate import EvaluationResult, EvaluationSet, objective_gain, summarize
from flash_grpo.events import Checkpoint, Evaluation, Event, Progress, Request, Warning_, read_events
from flash_grpo.metrics import PhaseClock, update_metrics
from flash_grpo.optimizer import WeightAverage, build_optimizer, learning_rate
from flash_grpo.planning.disk import VALIDATION_SAMPLES
from flash_grpo.planning.workload import evaluation_spending, replay_spending, rollout_spending
from flash_grpo.remaining import Pace, Range, validations_left
from flash_grpo.replay import ReplayReport, ReplaySettings, replay
from flash_grpo.resume import resumed_config
from flash_grpo.run import Run
from flash_grpo.safeguards import Safeguards
from flash_grpo.scores import Scores, read_scores
from flash_grpo.training_state import (
    optimizer_tensors,
    random_tensors,
    restore_optimizer,
    restore_random,
    state_document,
)

__all__ = ["Interrupted", "Trainer", "resume", "train"]


def train(
    config: RunConfig, folder: Path, preset: str | None = None, subscribers: Sequence[Callable[[Event], None]] = ()
) -> dict[str, Any]:
    """Train one run into a fresh folder and return its summary (also written as summary.json).

    Raises InputError for input that cannot be used, `Interrupted` after a stop or pause was asked for.
    """
    with open_run(config, folder, preset, subscribers) as run, closing(Trainer(run)) as trainer:
        return trainer.train()


def resume(
    folder: Path,
    overrides: Mapping[str, Any] | None = None,
    subscribers: Sequence[Callable[[Event], None]] = (),
    take_over: bool = False,
) -> dict[str, Any]:
    """Go on with a run from its newest whole checkpoint; returns its summary, raises as `train`.

    `overrides` may change what leaves the training's meaning alone. `take_over` takes the run from an owner that may
    still be alive, which then writes nothing more.
    """
    config = resumed_config(folder, overrides or {})
    opened = open_run(config, folder, None, subscribers, resume=True, take_over=take_over)
    with opened as run, closing(Trainer(run)) as trainer:
        return trainer.train()


class Trainer:
    """One run's state between updates."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.config, self.course = run.config, run.course
        self.named = dict(run.model.trainable())
        optimizer = build_optimizer(self.config, list(self.named.values()))
        self.optimizer = run.runtime.prepare(run.model, optimizer)
        self.average = WeightAverage(self.named, self.config.ema_decay) if self.config.ema_decay else None
        self.before: dict[str, Mapping[str, torch.Tensor]] = {}
        self.safeguards = Safeguards(run, self.named)
        self.mid_update = False
        self.saved_at = self.course.update if run.restored else 0
        self.collector = Collector(run)
        self.pace = Pace()

    def _restore(self, restored: Restored) -> None:
        put_weights(self.named, restored.weights)
        if self.average and restored.averaged is not None:
            put_weights(self.average.weights, restored.averaged)
        restore_optimizer(self.optimizer, list(self.named), restored.optimizer)
        restore_random(restored.document, restored.random)

    def close(self) -> None:
        """End the scoring thread."""
        self.collector.close()

    def train(self) -> dict[str, Any]:
        """The whole run, or what is left of it, from the base model's evaluation to the report."""
        self.safeguards.before_training()
        self.evaluate_base()
        if self.run.restored:
            self._restore(self.run.restored)
        self.pace.begin()
        try:
            while not self.settle():
                self._obey_requests()
                self.one_update()
        except Interrupted:
            self._save_unsaved()
            raise
        return self.report()

    def settle(self) -> bool:
        """Validate and save where the present update asks for it; whether the training has come to its end.

        Looks only at the state that checkpoints keep (and the time), so a resumed run settles what is unsettled.
        """
        course, config = self.course, self.config
        ended = course.update >= config.updates or (course.update > 0 and self.run.out_of_time())
        validate = (ended or self._due(config.evaluate_every)) and course.validated_at != course.update
        if validate:
            self.validate()
        if validate or (self._due(config.checkpoint_every) and self.saved_at != course.update):
            self.save()
        if not ended and (reason := self._early_stop() or self.safeguards.declined()):
            self.run.emit(Warning_(reason, "early_stop", course.update))
            return True
        return ended

    def _obey_requests(self) -> None:
        """Do what was asked from outside: save, sample, or end the run."""
        for request in self.run.pending_requests():
            if request == "save":
                self.save()
            elif request == "sample":
                self.sample()
            if self.run.runtime.is_main:
                self.run.requests.acknowledge(request)
            self.run.emit(Request(request, self.course.update))
            if request in ENDINGS:
                raise Interrupted(ENDINGS[request])

    def _save_unsaved(self) -> None:
        """Save the last complete update on the way out, unless its checkpoint exists or the weights have moved on."""
        if self.course.update and self.saved_at != self.course.update and not self.mid_update:
            self._write_checkpoint()  # without asking the other processes, which may be gone

    def _due(self, every: int) -> bool:
        return every > 0 and self.course.update > 0 and self.course.update % every == 0

    # one update ------------------------------------------------------------------------------------------------

    def one_update(self) -> None:
        """Roll out, score, weigh and update once."""
        clock = PhaseClock(self.run.meter)
        self._progress("rollout")
        batch = self.collect(clock)
        rate = learning_rate(self.config, self.course.update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with clock.phase("replay"):
            report, norm = self._learn(batch)
        self.course.update += 1
        self.mid_update = False
        self.run.keep_count()
        metrics = update_metrics(
            sampler=self.run.sampler,
            device=self.run.model.device,
            weights=self.config.rewards,
            update=self.course.update,
            plans=batch.plans,
            rewards=batch.rewards,
            advantages=batch.advantages,
            report=report,
            grad_norm=norm,
            learning_rate=rate,
            kl_measured=self.config.kl_weight > 0,
            clock=clock,
        )
        self.run.emit(metrics)
        self.pace.updated()
        if self.course.update == 1:
            self.safeguards.same_weights()
        self.run.runtime.log({f"reward/{name}": r["mean"] for name, r in metrics.rewards.items()}, self.course.update)

    def collect(self, clock: PhaseClock) -> UpdateBatch:
        """Roll out and score this update's groups, and weigh every rollout against its group."""
        return self.collector.collect(clock)

    def accumulate(self, batch: UpdateBatch) -> ReplayReport:
        """Replay the batch's transitions: the parameters' gradients become those of the update's mean loss."""
        config, run = self.config, self.run
        own = run.runtime.own_groups(config.prompts_per_update)
        self.optimizer.zero_grad(set_to_none=True)
        own_report = replay(
            model=run.model,
            sampler=run.sampler,
            embeddings=run.embeddings,
            rollouts=batch.rollouts,
            advantages=batch.advantages.values[own.start : own.stop],
            groups=config.prompts_per_update,
            settings=ReplaySettings(config.replay_batch, config.clip, config.kl_weight, run.model.backward_cost),
            backward=run.runtime.backward,
            meter=run.meter,
        )
        parts = run.runtime.gather_values(dataclasses.asdict(own_report))
        return ReplayReport.total([ReplayReport(**part) for part in parts])

    def _learn(self, batch: UpdateBatch) -> tuple[ReplayReport, float]:
        """`inner_updates` optimiser steps on one batch; the report is of the first, on-policy one."""
        first: tuple[ReplayReport, float] | None = None
        for _ in range(self.config.inner_updates):
            report = self.accumulate(batch)
            self.safeguards.before_step(batch.plans, batch.rewards, batch.advantages, report)
            norm = self.run.runtime.clip_gradients(list(self.named.values()), self.config.max_grad_norm)
            if not math.isfinite(norm):
                raise FloatingPointError(
                    f"the gradient of update {self.course.update + 1} is not finite; "
                    "lower learning_rate or use dtype float32"
                )
            self.mid_update = True
            self.optimizer.step()
            first = first or (report, norm)
        if self.average and (self.course.update + 1) % self.config.ema_every == 0:
            self.average.step(self.named, self.course.update // self.config.ema_every)
        assert first is not None
        return first

    # evaluation and saving ---------------------------------------------------------------------------------------

    def evaluate_base(self) -> None:
        """The base model on both evaluation sets, with its videos: before alignment. A resumed run reads it back."""
        run = self.run
        told = {(r.update, r.data["split"]) for r in read_events(run.folder) if r.type == Evaluation.type}
        for chosen in (run.validation, run.heldout):
            began = self.pace.now()
            own = read_scores(run.folder, 0, chosen.split, chosen.prompts, list(self.config.rewards))
            told_all = run.runtime.broadcast(dataclasses.asdict(own) if own else None)
            known = Scores(**told_all) if told_all else None
            if known is None:
                spent = run.meter.nfe
                result = self._evaluate(chosen)
                self.before[chosen.split] = result.scores
            else:
                self.before[chosen.split] = known.rewards
                if run.restored is None:  # a checkpoint's counters hold it already
                    run.meter.nfe += known.nfe  # counted over all processes already
                    run.meter.cost += known.nfe
            if (0, chosen.split) not in told:
                scores = summarize(self.before[chosen.split])
                run.emit(Evaluation(0, chosen.split, scores, len(chosen.prompts)))
            if known is None:
                run.keep_evaluation(0, chosen, result, run.meter.nfe - spent)
                self.pace.evaluated(len(chosen.prompts), began)

    def _evaluate(self, chosen: EvaluationSet) -> EvaluationResult:
        self._progress("evaluate")
        keep = self.config.videos_saved if chosen is self.run.heldout else VALIDATION_SAMPLES
        return self.run.evaluate(chosen, keep)

    def _deployed_weights(self) -> AbstractContextManager[None]:
        """Within this context the model carries the weights that would be deployed: the averages, where kept."""
        return self.average.swapped_in(self.named) if self.average else nullcontext()

    def validate(self) -> None:
        """Validate the weights that would be deployed, and note whether they are the best so far."""
        chosen, course = self.run.validation, self.course
        spent, began = self.run.meter.nfe, self.pace.now()
        with self._deployed_weights():
            result = self._evaluate(chosen)
        gain = objective_gain(self.before["validation"], result.scores, self.config.rewards)
        course.validations.append((course.update, gain))
        self.run.keep_count()
        best = course.best_update == course.update
        self.run.emit(Evaluation(course.update, chosen.split, summarize(result.scores), len(chosen.prompts), best))
        self.run.keep_evaluation(course.update, chosen, result, self.run.meter.nfe - spent)
        self.pace.evaluated(len(chosen.prompts), began)

    def sample(self) -> None:
        """Render the first validation prompts with the present weights, off the record."""
        chosen = self.run.validation
        few = EvaluationSet("sample", chosen.prompts[:VALIDATION_SAMPLES], chosen.first_embedding)
        with self._deployed_weights():
            self.run.keep_evaluation(self.course.update, few, self.run.evaluate(few, VALIDATION_SAMPLES))

    def save(self) -> None:
        """Write a checkpoint of the present weights and move the pointers."""
        self.safeguards.same_weights()
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        run, course = self.run, self.course
        if not run.runtime.is_main:
            self.saved_at = course.update
            return
        run.guard()
        state = TrainerState(
            optimizer_tensors(self.optimizer, list(self.named)),
            random_tensors(),
            state_document(course, self.config.model_dump()),
        )
        averaged = self.average.weights if self.average else None
        path = save_checkpoint(run.folder, course.update, self.config, self.named, averaged, state, run.guard)
        self.saved_at = course.update
        write_pointers(run.folder, course.best_update or None, course.update)
        prune(run.folder, {course.best_update, *saved_updates(run.folder)[-self.config.keep_checkpoints :]})
        best = course.best_update == course.update
        run.emit(Checkpoint(course.update, str(path.relative_to(run.folder)), best))

    def report(self) -> dict[str, Any]:
        """Look at the held-out set with the best checkpoint, and write summary, chart and contact sheet."""
        self.run.runtime.barrier()  # until the main process has written the last checkpoint
        shown = self._put_best_weights()
        after = self._evaluate(self.run.heldout)
        event = Evaluation(shown, "heldout", summarize(after.scores), len(self.run.heldout.prompts), True)
        self.run.emit(event)
        self.run.keep_evaluation(shown, self.run.heldout, after)
        return self.run.finish(shown, self.before["heldout"], after.scores)

    def _put_best_weights(self) -> int:
        """Load the best checkpoint, or the newest whole one where there is no best; returns its update."""
        best = self.course.best_update
        if not best:
            message = "no validation was better than the base model; the report shows the last weights"
            self.run.emit(Warning_(message, "no_gain", self.course.update))
        newest = [update for update in reversed(saved_updates(self.run.folder)) if update != best]
        for update in [best, *newest] if best else newest:
            try:
                put_weights(self.named, load_weights(checkpoint_folder(self.run.folder, update)))
                return update
            except InputError as error:
                self.run.emit(Warning_(str(error), "damaged_checkpoint", self.course.update))
        raise InputError(f"no checkpoint of {self.run.folder} is whole; train it again")

    def _early_stop(self) -> str | None:
        """Why to stop early: too many validations without a new best."""
        patience, course = self.config.early_stop_patience, self.course
        if not patience or course.since_best < patience:
            return None
        return (
            f"stopped early at update {course.update}: {course.since_best} validations without a new best; "
            f"the best is update {course.best_update}"
        )

    def _progress(self, phase: str) -> None:
        meter, elapsed, left = self.run.meter, self.run.seconds(), self._left()
        figures = (left.middle, meter.cost, meter.nfe, left.low, left.high) if left else (None, meter.cost, meter.nfe)
        self.run.emit(Progress(phase, self.course.update, self.config.updates, elapsed, *figures))

    def _left(self) -> Range | None:
        """Seconds up to the report; the run's minutes end its updates, not its evaluations."""
        config, course, run = self.config, self.course, self.run
        validations = validations_left(config.updates, config.evaluate_every, course.update, course.validated_at)
        each = len(run.validation.prompts)
        update_cost = rollout_spending(config, 0).cost + replay_spending(config).cost
        return self.pace.left(
            updates=config.updates - course.update,
            videos=max(0, validations - 1) * each,
            last_videos=min(1, validations) * each + len(run.heldout.prompts),
            video_share=evaluation_spending(config, 1).cost / update_cost,
            limit=math.inf if config.minutes is None else config.minutes * 60 - run.seconds(),
        )
