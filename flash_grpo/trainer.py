"""The loop: roll out, score, weigh, update, record, checkpoint, evaluate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flash_grpo.advantage import Advantages, group_advantages, shuffled
from flash_grpo.checkpoint import load_weights, prune, put_weights, read_pointer, save_checkpoint, write_pointers
from flash_grpo.config import RunConfig
from flash_grpo.evaluate import EvaluationResult, EvaluationSet, evaluate, objective_gain, save_videos, summarize
from flash_grpo.events import Checkpoint, Evaluation, Event, Progress, Samples, Warning_
from flash_grpo.metrics import PhaseClock, update_metrics
from flash_grpo.noise import noise_seed
from flash_grpo.optimizer import WeightAverage, build_optimizer, learning_rate
from flash_grpo.replay import ReplayReport, ReplaySettings, replay
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rollout import GroupPlan, GroupRollout, roll_out
from flash_grpo.run import Interrupted, Run, open_run
from flash_grpo.schedule import draw_prompts, draw_step

__all__ = ["Interrupted", "Trainer", "train"]

VALIDATION_SAMPLES = 4


def train(
    config: RunConfig, folder: Path, preset: str | None = None, subscribers: Sequence[Callable[[Event], None]] = ()
) -> dict[str, Any]:
    """Train one run into a fresh folder and return its summary (also written as summary.json).

    Raises InputError for input that cannot be used, `Interrupted` after a stop or pause was asked for.
    """
    with open_run(config, folder, preset, subscribers) as run, closing(Trainer(run)) as trainer:
        return trainer.train()


@dataclass(frozen=True)
class UpdateBatch:
    """One update's work: all plans, this process's rollouts, all rewards and advantages [groups, K]."""

    plans: list[GroupPlan]
    rollouts: list[GroupRollout]
    rewards: dict[str, torch.Tensor]
    advantages: Advantages


class Trainer:
    """One run's state between updates."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.config = run.config
        self.named = dict(run.model.trainable())
        optimizer = build_optimizer(self.config, list(self.named.values()))
        self.optimizer = run.runtime.prepare(run.model, optimizer)
        self.average = WeightAverage(self.named, self.config.ema_decay) if self.config.ema_decay else None
        self.before: dict[str, EvaluationResult] = {}
        self.best_gain, self.best_update, self.since_best = 0.0, 0, 0
        self.update = 0
        self.scorer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward")

    def close(self) -> None:
        """End the scoring thread."""
        self.scorer.shutdown(cancel_futures=True)

    def train(self) -> dict[str, Any]:
        """The whole run, from the base model's evaluation to the report."""
        self.evaluate_base()
        last = False
        while not last:
            self._obey_requests()
            self.one_update()
            last = self.update == self.config.updates or self.run.out_of_time()
            validated = last or self._due(self.config.evaluate_every)
            if validated:
                self.validate()
            if validated or self._due(self.config.checkpoint_every):
                self.save()
            if self.config.early_stop_patience and self.since_best >= self.config.early_stop_patience:
                self.run.emit(Warning_(self._early_stop_sentence(), "early_stop", self.update))
                break
        return self.report()

    def _obey_requests(self) -> None:
        """Stop or pause if asked to, with the present weights on disk."""
        try:
            self.run.obey_requests()
        except Interrupted:
            if self.update:
                self.save()
            raise

    def _due(self, every: int) -> bool:
        return every > 0 and self.update % every == 0

    # one update ------------------------------------------------------------------------------------------------

    def one_update(self) -> None:
        """Roll out, score, weigh and update once."""
        clock = PhaseClock(self.run.meter)
        self._progress("rollout")
        batch = self.collect(clock)
        rate = learning_rate(self.config, self.update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with clock.phase("replay"):
            report, norm = self._learn(batch)
        self.update += 1
        metrics = update_metrics(
            sampler=self.run.sampler,
            device=self.run.model.device,
            weights=self.config.rewards,
            update=self.update,
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
        if self.update == 1 and self.config.clip < 3 * metrics.drift:
            self.run.emit(Warning_(self._drift_sentence(metrics.drift), "drift", self.update))
        self.run.runtime.log({f"reward/{name}": r["mean"] for name, r in metrics.rewards.items()}, self.update)

    def collect(self, clock: PhaseClock) -> UpdateBatch:
        """Roll out and score this update's groups, and weigh every rollout against its group."""
        config = self.config
        plans = self._plans()
        rollouts, own_rewards = self._roll_out_and_score(plans, clock)
        rewards = self.run.runtime.gather(own_rewards)
        advantages = group_advantages(rewards, config.rewards, config.reward_std, config.advantage_clamp)
        if config.shuffle_advantages:
            seed = noise_seed(config.seed, self.update, 0, 0, "shuffle")
            advantages = Advantages(shuffled(advantages.values, seed), advantages.dead)
        return UpdateBatch(plans, rollouts, rewards, advantages)

    def _plans(self) -> list[GroupPlan]:
        """All groups of this update, in global order, the same on every process."""
        config, groups = self.config, self.config.prompts_per_update
        prompts = draw_prompts(config.seed, self.update, groups, len(self.run.train_prompts))
        plans = []
        for group, prompt in enumerate(prompts):
            step = draw_step(config.seed, self.update, group, groups, config.candidates())
            plans.append(GroupPlan(group, self.run.train_embedding[prompt], step))
        return plans

    def _roll_out_and_score(
        self, plans: Sequence[GroupPlan], clock: PhaseClock
    ) -> tuple[list[GroupRollout], dict[str, torch.Tensor]]:
        """Roll out this process's groups; a thread scores decoded groups while the next ones roll out and decode."""
        run = self.run
        own = [plans[index] for index in run.runtime.own_groups(len(plans))]
        at_once = max(1, self.config.rollout_batch // self.config.group_size)
        rollouts: list[GroupRollout] = []
        pending: list[Future[dict[str, torch.Tensor]]] = []
        for start in range(0, len(own), at_once):
            with clock.phase("rollout"):
                part = own[start : start + at_once]
                done = roll_out(run.model, run.sampler, run.embeddings, part, self.update, run.meter)
            with clock.phase("decode"):
                for rollout in done:
                    self._check_finite(rollout)
                    frames = torch.cat([run.model.decode(p) for p in rollout.latents.split(self.config.decode_batch)])
                    pending.append(self.scorer.submit(self._score, rollout.plan, frames))
            rollouts.extend(done)
        with clock.phase("reward"):
            scores = [future.result() for future in pending]
        return rollouts, {name: torch.stack([s[name] for s in scores]) for name in scores[0]}

    def _check_finite(self, rollout: GroupRollout) -> None:
        """Blame the weights, not the reward that would see such videos."""
        if not bool(torch.isfinite(rollout.latents).all()):
            raise FloatingPointError(
                f"the videos of update {self.update + 1} are not finite: the weights have diverged; lower learning_rate"
            )

    def _score(self, plan: GroupPlan, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        prompt = self.run.prompt_of_embedding[plan.prompt]
        count = len(frames)
        batch = VideoBatch(frames, [prompt.text] * count, [prompt.metadata] * count, self.config.fps)
        return self.run.rewards.score(batch, group_size=count)

    def accumulate(self, batch: UpdateBatch) -> ReplayReport:
        """Replay the batch's transitions: the parameters' gradients become those of the update's mean loss."""
        config, run = self.config, self.run
        own = run.runtime.own_groups(config.prompts_per_update)
        self.optimizer.zero_grad(set_to_none=True)
        return replay(
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

    def _learn(self, batch: UpdateBatch) -> tuple[ReplayReport, float]:
        """`inner_updates` optimiser steps on one batch; the report is of the first, on-policy one."""
        first: tuple[ReplayReport, float] | None = None
        for _ in range(self.config.inner_updates):
            report = self.accumulate(batch)
            norm = self.run.runtime.clip_gradients(list(self.named.values()), self.config.max_grad_norm)
            if not math.isfinite(norm):
                raise FloatingPointError(
                    f"the gradient of update {self.update + 1} is not finite; lower learning_rate or use dtype float32"
                )
            self.optimizer.step()
            first = first or (report, norm)
        if self.average and (self.update + 1) % self.config.ema_every == 0:
            self.average.step(self.named, self.update // self.config.ema_every)
        assert first is not None
        return first

    # evaluation and saving ---------------------------------------------------------------------------------------

    def evaluate_base(self) -> None:
        """The base model on both evaluation sets, with its videos: before alignment."""
        for chosen in (self.run.validation, self.run.heldout):
            self.run.obey_requests()
            result = self._evaluate(chosen)
            self.before[chosen.split] = result
            self.run.emit(Evaluation(0, chosen.split, summarize(result.scores), len(chosen.prompts)))
            self._save_videos(0, chosen, result)

    def _evaluate(self, chosen: EvaluationSet) -> EvaluationResult:
        self._progress("evaluate")
        run = self.run
        keep = self.config.videos_saved if chosen is run.heldout else VALIDATION_SAMPLES
        return evaluate(run.model, run.config, run.rewards, run.embeddings, chosen, run.meter, keep)

    def validate(self) -> None:
        """Validate the weights that would be deployed; keep them if they are the best so far."""
        chosen = self.run.validation
        with self.average.swapped_in(self.named) if self.average else nullcontext():
            result = self._evaluate(chosen)
        gain = objective_gain(self.before["validation"].scores, result.scores, self.config.rewards)
        best = gain > self.best_gain
        self.since_best = 0 if best else self.since_best + 1
        if best:
            self.best_gain, self.best_update = gain, self.update
        event = Evaluation(self.update, chosen.split, summarize(result.scores), len(chosen.prompts), best)
        self.run.emit(event)
        self._save_videos(self.update, chosen, result)

    def save(self) -> None:
        """Write a checkpoint of the present weights and move the pointers."""
        if not self.run.runtime.is_main:
            return
        folder = self.run.folder
        averaged = self.average.weights if self.average else None
        path = save_checkpoint(folder, self.update, self.config, self.named, averaged)
        best = self.best_update or None
        write_pointers(folder, best, self.update)
        prune(folder, {self.update, self.best_update})
        self.run.emit(Checkpoint(self.update, str(path.relative_to(folder)), self.best_update == self.update))

    def _save_videos(self, update: int, chosen: EvaluationSet, result: EvaluationResult) -> None:
        if not self.run.runtime.is_main:
            return
        files = save_videos(self.run.folder, update, chosen.prompts, result.videos, self.config.fps)
        self.run.emit(Samples(update, files))

    def report(self) -> dict[str, Any]:
        """Look at the held-out set with the best checkpoint, and write summary, chart and contact sheet."""
        best = read_pointer(self.run.folder, "best")
        if best is None:
            message = "no validation was better than the base model; the report shows the last weights"
            self.run.emit(Warning_(message, "no_gain", self.update))
            best = read_pointer(self.run.folder, "latest")
        assert best is not None
        put_weights(self.named, load_weights(best))
        after, shown = self._evaluate(self.run.heldout), int(best.name)
        self.run.emit(Evaluation(shown, "heldout", summarize(after.scores), len(self.run.heldout.prompts), True))
        self._save_videos(shown, self.run.heldout, after)
        return self.run.finish(self.update, shown, self.before["heldout"], after)

    def _early_stop_sentence(self) -> str:
        return (
            f"stopped early at update {self.update}: {self.since_best} validations without a new best; "
            f"the best is update {self.best_update}"
        )

    def _drift_sentence(self, drift: float) -> str:
        return (
            f"rollout and replay differ by {drift:.1e} before any update, clip is {self.config.clip:.1e}: "
            f"clipping will silence rollouts at random; raise clip above {3 * drift:.1e}"
        )

    def _progress(self, phase: str) -> None:
        elapsed = time.monotonic() - self.run.started
        eta = None
        if self.update:
            limit = math.inf if self.config.minutes is None else self.config.minutes * 60 - elapsed
            eta = max(0.0, min(elapsed / self.update * (self.config.updates - self.update), limit))
        meter = self.run.meter
        self.run.emit(Progress(phase, self.update, self.config.updates, elapsed, eta, meter.cost, meter.nfe))
