"""Several rewards on the same videos, every answer checked and none waited for longer than agreed."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress

import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import Reward, VideoBatch
from flash_grpo.rewards.registry import create

_THREAD_NAME = "flash-grpo reward "


def hanging() -> bool:
    """Whether a thread is still in a reward that nobody waits for; such a process is best ended without clean-up."""
    return any(thread.name.startswith(_THREAD_NAME) for thread in threading.enumerate())


class RewardSet:
    """Rewards with their weights; weight 0 means watched only.

    `rewards` maps a name or import path to its weight, `options` a reward's name to its options; `timeout` is the
    longest one call of a reward may take in seconds, None for ever. Raises InputError for unknown names, options and
    weights that are no finite numbers.
    """

    def __init__(
        self,
        rewards: Mapping[str, float],
        options: Mapping[str, Mapping[str, object]] | None = None,
        timeout: float | None = None,
    ) -> None:
        options = options or {}
        for name, weight in rewards.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise InputError(
                    f"the weight of reward {name!r} must be a finite number, got {weight!r}; 0 only watches"
                )
        stray = sorted(set(options) - set(rewards))
        if stray:
            raise InputError(
                f"options given for {', '.join(stray)}, which is not among the rewards; add it or drop them"
            )
        self.weights: dict[str, float] = {name: float(weight) for name, weight in rewards.items()}
        self._rewards: dict[str, Reward] = {name: create(name, options.get(name)) for name in rewards}
        self._timeout = timeout
        self._given_up: Future[object] = Future()

    @property
    def groupwise(self) -> bool:
        """Whether a reward among these compares the videos of a group."""
        return any(reward.groupwise for reward in self._rewards.values())

    def give_up(self, reason: Exception | None = None) -> None:
        """Wait for no reward any more: calls under way and later ones raise `reason` at once. From any thread."""
        with suppress(InvalidStateError):  # given up before
            self._given_up.set_exception(reason or RuntimeError("scoring was given up because the run ends"))

    def score(self, videos: VideoBatch, group_size: int | None) -> dict[str, torch.Tensor]:
        """Raw scores by reward, each [B] float32 on the CPU; weights are not applied.

        Groups are `group_size` consecutive videos of one prompt; None if there are no groups, which groupwise rewards
        refuse. Raises InputError, naming the reward, for answers of a wrong kind or length or with non-finite values;
        RuntimeError, naming it too, for a reward that raises or does not answer in time.
        """
        if group_size is not None and (group_size < 1 or len(videos) % group_size):
            raise InputError(f"{len(videos)} videos do not divide into groups of {group_size}; pass whole groups")
        scores = {}
        for name, reward in self._rewards.items():
            if not reward.groupwise:
                scores[name] = self.score_one(name, videos)
                continue
            if group_size is None:
                raise InputError(f"reward {name!r} compares the videos of a group, but no group size came; pass one")
            starts = range(0, len(videos), group_size)
            groups = [self.score_one(name, videos.part(start, start + group_size)) for start in starts]
            scores[name] = torch.cat(groups) if groups else torch.zeros(0)
        return scores

    def score_one(self, name: str, videos: VideoBatch) -> torch.Tensor:
        """One reward's raw scores, [B] float32 on the CPU, for videos of one group; errors as `score`."""
        reward = self._rewards[name]
        if self._given_up.done():
            self._given_up.result()
        call = _call(name, reward, videos)
        done, _ = wait((call, self._given_up), self._timeout, FIRST_COMPLETED)
        if not done:
            seconds = f"{self._timeout:g} seconds"
            self.give_up(  # whatever is scored next would hang as well
                RuntimeError(
                    f"reward {name!r} did not answer for {len(videos)} videos within {seconds}; "
                    "mend the reward, or raise reward_timeout if it may take longer"
                )
            )
        return _checked(name, (call if call in done else self._given_up).result(), videos)


def _call(name: str, reward: Reward, videos: VideoBatch) -> Future[object]:
    """Call a reward in a thread of its own: Python cannot end a call that hangs, only leave it behind.

    The thread is a daemon, so it does not keep the process alive.
    """
    call: Future[object] = Future()

    def answer() -> None:
        try:
            with torch.no_grad():
                call.set_result(reward.score(videos))
        except InputError as error:
            call.set_exception(error)
        except BaseException as error:  # also SystemExit: a reward does not end the run silently
            sentence = " ".join(str(error).split()) or "no message"
            failure = RuntimeError(
                f"reward {name!r} raised {type(error).__name__} ({sentence}); mend it or take it out of rewards"
            )
            failure.__cause__ = error
            call.set_exception(failure)

    threading.Thread(target=answer, name=f"{_THREAD_NAME}{name}", daemon=True).start()
    return call


def _checked(name: str, answer: object, videos: VideoBatch) -> torch.Tensor:
    if not isinstance(answer, torch.Tensor):
        raise InputError(
            f"reward {name!r} answered with a {type(answer).__name__}; return a tensor of one float per video"
        )
    if answer.shape != (len(videos),):
        raise InputError(
            f"reward {name!r} answered with shape {list(answer.shape)} for {len(videos)} videos; "
            "return exactly one float per video"
        )
    if answer.is_complex():
        raise InputError(f"reward {name!r} answered with {answer.dtype} numbers; return one real float per video")
    answer = answer.detach().to("cpu", torch.float32)
    bad = (~torch.isfinite(answer)).nonzero().flatten()
    if len(bad):
        first = int(bad[0])
        raise InputError(
            f"reward {name!r} gave {float(answer[first])} for video {first} ({videos.prompts[first]!r}), "
            f"{len(bad)} of {len(answer)} values are not finite; make the reward answer a finite number for every video"
        )
    return answer
