"""The doctor at a run's side: when its checks are made, what becomes of their findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from flash_grpo.advantage import Advantages
from flash_grpo.doctor import (
    Finding,
    FirstUpdate,
    check_first_update,
    check_setup,
    heed,
    ranks_agree,
    reward_declining,
)
from flash_grpo.events import Warning_
from flash_grpo.replay import ReplayReport
from flash_grpo.rollout import GroupPlan
from flash_grpo.run import Run


class Safeguards:
    """The checks of one run over its trained `weights`; warnings become events, refusals raise InputError.

    All processes must call the same methods in the same order. With `checks: false` only `same_weights` and `declined`
    do anything.
    """

    def __init__(self, run: Run, weights: Mapping[str, torch.Tensor]) -> None:
        self.run, self.weights = run, weights
        self._awaited = run.config.checks

    def before_training(self) -> None:
        """What can be judged before the first forward."""
        if self.run.config.checks:
            self._heed(self.setup_findings(self.run.folder))

    def before_step(
        self,
        plans: Sequence[GroupPlan],
        rewards: Mapping[str, torch.Tensor],
        advantages: Advantages,
        report: ReplayReport,
    ) -> None:
        """What the first update shows between its backward and its optimiser step; nothing at later ones."""
        if self._awaited:
            self._heed(self.update_findings(plans, rewards, advantages, report))
            self._awaited = False

    def same_weights(self) -> None:
        """After the first update and at checkpoints: all processes must hold the same weights, bit for bit."""
        same = self.run.runtime.same_everywhere(self.weights.values())
        self._heed([ranks_agree(same, self.run.course.update)])

    def declined(self) -> str | None:
        """The sentence with which to stop, once the validation reward has declined `decline_patience` times in a row.

        The base model counts as the first validation.
        """
        course, patience = self.run.course, self.run.config.decline_patience
        if not reward_declining([0.0, *(gain for _, gain in course.validations)], patience):
            return None
        best = f"the best is update {course.best_update}" if course.best_update else "none was better than the base"
        return f"stopped at update {course.update}: the validation reward declined {patience} times in a row; {best}"

    def setup_findings(self, folder: Path) -> list[Finding]:
        """The findings behind `before_training`, for a run that will be written to `folder`."""
        run, trained = self.run, sum(weight.numel() for weight in self.weights.values())
        return check_setup(run.config, folder, run.rewards, trained, run.runtime.gather)

    def update_findings(
        self,
        plans: Sequence[GroupPlan],
        rewards: Mapping[str, torch.Tensor],
        advantages: Advantages,
        report: ReplayReport,
    ) -> list[Finding]:
        """The findings behind `before_step`."""
        run = self.run
        gradients = {name: weight.grad for name, weight in self.weights.items()}
        update = FirstUpdate(run.course.update, plans, rewards, advantages, report, self.weights, gradients)
        return check_first_update(run.config, run.model, run.sampler, run.embeddings, update, run.runtime.gather)

    def _heed(self, findings: Sequence[Finding]) -> None:
        update = self.run.course.update
        heed(findings, self.run.config.ignore_checks, lambda f: self.run.emit(Warning_(f.sentence, f.code, update)))
