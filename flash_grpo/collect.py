"""Collecting one update: groups rolled out, decoded, scored and weighed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import torch

from flash_grpo.advantage import Advantages, group_advantages, shuffled
from flash_grpo.metrics import PhaseClock
from flash_grpo.noise import noise_seed
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rollout import GroupPlan, GroupRollout, roll_out
from flash_grpo.run import Run
from flash_grpo.schedule import draw_prompts, draw_step

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class UpdateBatch:
    """One update's work: all plans, this process's rollouts, all rewards and advantages [groups, K]."""

    plans: list[GroupPlan]
    rollouts: list[GroupRollout]
    rewards: dict[str, torch.Tensor]
    advantages: Advantages


class Collector:
    """Rolls out one run's updates, with a thread that scores while the next groups are rolled out."""

    def __init__(self, run: Run) -> None:
        self.run, self.config = run, run.config
        self._scorer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward")

    def close(self) -> None:
        """End the scoring thread."""
        self._scorer.shutdown(wait=False, cancel_futures=True)

    def collect(self, clock: PhaseClock) -> UpdateBatch:
        """Roll out and score this update's groups, and weigh every rollout against its group."""
        config = self.config
        plans = self._plans()
        rollouts, own_rewards = self._roll_out_and_score(plans, clock)
        rewards = self.run.runtime.gather(own_rewards)
        advantages = group_advantages(rewards, config.rewards, config.reward_std, config.advantage_clamp)
        if config.shuffle_advantages:
            seed = noise_seed(config.seed, self.run.course.update, 0, 0, "shuffle")
            advantages = Advantages(shuffled(advantages.values, seed), advantages.dead)
        return UpdateBatch(plans, rollouts, rewards, advantages)

    def _plans(self) -> list[GroupPlan]:
        """All groups of this update, in global order, the same on every process."""
        config, groups = self.config, self.config.prompts_per_update
        prompts = draw_prompts(config.seed, self.run.course.update, groups, len(self.run.train_prompts))
        plans = []
        for group, prompt in enumerate(prompts):
            step = draw_step(config.seed, self.run.course.update, group, groups, config.candidates())
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
                done = roll_out(run.model, run.sampler, run.embeddings, part, self.run.course.update, run.meter)
            with clock.phase("decode"):
                for rollout in done:
                    self._check_finite(rollout)
                    frames = torch.cat([run.model.decode(p) for p in rollout.latents.split(self.config.decode_batch)])
                    pending.append(self._scorer.submit(self._score, rollout.plan, frames))
            rollouts.extend(done)
        with clock.phase("reward"):
            scores = [self._wait(future) for future in pending]
        return rollouts, {name: torch.stack([s[name] for s in scores]) for name in scores[0]}

    def _wait(self, future: Future[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """A thread's answer; a slow reward does not keep a signal waiting."""
        while not future.done():
            self.run.between_forwards()
            wait([future], timeout=POLL_SECONDS)
        return future.result()

    def _check_finite(self, rollout: GroupRollout) -> None:
        """Blame the weights, not the reward that would see such videos."""
        if not bool(torch.isfinite(rollout.latents).all()):
            raise FloatingPointError(
                f"the videos of update {self.run.course.update + 1} are not finite: the weights have diverged; "
                "lower learning_rate"
            )

    def _score(self, plan: GroupPlan, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        prompt = self.run.prompt_of_embedding[plan.prompt]
        count = len(frames)
        batch = VideoBatch(frames, [prompt.text] * count, [prompt.metadata] * count, self.config.fps)
        return self.run.rewards.score(batch, group_size=count)
