"""Real processes for the tests of several: how to start them, and what they do.

Processes are forked off one server that has imported everything, so a start takes no seconds of imports.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from flash_grpo import advantage, cli, collect
from flash_grpo.collect import Collector
from flash_grpo.config import RunConfig, build_config
from flash_grpo.control import Requests
from flash_grpo.distributed import Runtime, fingerprint
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.run import Run
from flash_grpo.trainer import Trainer
from tests.tiny import config_for

Job = Callable[..., Any]


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit code (negative: the signal that killed it), terminal output, the job's result."""

    code: int | None
    out: str
    err: str
    result: Any


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(job: Job, world: int, folder: Path, *arguments: Any, timeout: float = 600.0) -> list[Ended]:
    """Run `job(*arguments)` in `world` processes that find each other; AssertionError if they hang."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.distributed_worker"])
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command line does; read when torch is loaded
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    processes = []
    for rank in range(world):
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        variables = {**{name: str(value) for name, value in names.items()}, "MASTER_ADDR": "127.0.0.1"}
        processes.append(context.Process(target=_child, args=(job, variables, folder, arguments)))
        processes[-1].start()
    limit = time.monotonic() + timeout
    for process in processes:
        process.join(max(0.0, limit - time.monotonic()))
    hanging = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for rank in hanging:
        processes[rank].kill()
    ended = [_ended(process.exitcode, folder, rank) for rank, process in enumerate(processes)]
    assert not hanging, f"processes {hanging} of {world} hang after {timeout} s: {ended}"
    return ended


def _ended(code: int | None, folder: Path, rank: int) -> Ended:
    out, err = ((folder / f"{kind}-{rank}").read_text(encoding="utf-8") for kind in ("out", "err"))
    file = folder / f"result-{rank}"
    return Ended(code, out, err, pickle.loads(file.read_bytes()) if file.exists() else None)


def _child(job: Job, variables: Mapping[str, str], folder: Path, arguments: Sequence[Any]) -> None:
    os.environ.update(variables)
    rank = variables["RANK"]
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{kind}-{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    torch.set_num_threads(1)
    result = job(*arguments)
    (folder / f"result-{rank}").write_bytes(pickle.dumps(result))


# jobs ----------------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> None:
    """The command line `flash-grpo ARGUMENTS` with its exit code."""
    sys.argv = ["flash-grpo", *arguments]
    cli.main()


def command_with_fault(fault: str, noted: Path, *arguments: str) -> None:
    """The command line, with a fault that befalls one process as it rolls out; the time is written to `noted`."""
    strike, victim = FAULTS[fault]

    def score(*parts: Any) -> Any:
        noted.write_text(str(time.time()))
        return strike(*parts)

    with ExitStack() as stack:
        if int(os.environ["RANK"]) == victim % int(os.environ["WORLD_SIZE"]):
            stack.enter_context(patch.object(Collector, "_score", score))
        command(*arguments)


def primitives() -> dict[str, Any]:
    """What processes tell each other."""
    with Runtime(build_config("micro", {"prompts_per_update": 6}), Path()) as runtime:
        rank = runtime.rank
        weights = [torch.arange(12.0).view(3, 4), torch.full((5,), 0.5, dtype=torch.bfloat16)]
        equal = runtime.same_everywhere(weights)
        if rank:
            weights[0].view(torch.int32)[2, 3] ^= 1
        flipped = runtime.same_everywhere(weights)
        runtime.broadcast_tensors(weights)
        started = time.monotonic()
        time.sleep(0.0 if rank else 0.5)
        runtime.barrier()
        return {
            "equal": equal,
            "flipped": flipped,
            "repaired": runtime.same_everywhere(weights),
            "broadcast": runtime.broadcast({"asked": ["stop"], "from": rank}),
            "values": runtime.gather_values("value" * rank),
            "on_main": runtime.gather_values(rank, to_main=True),
            "rows": runtime.gather({"r": torch.full((1, 2), float(rank))})["r"].tolist(),
            "waited": time.monotonic() - started,
            "shares": [list(runtime.own_groups(count)) for count in (1, 2, 5)],
            "gradients": gradients(runtime),
        }


class _Model:
    """Three numbers to train: two that every process uses, one that none does."""

    def __init__(self) -> None:
        self.denoiser = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.ones(3)) for n in ("all", "one", "none")})

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return iter(self.denoiser.items())


def gradients(runtime: Runtime) -> dict[str, list[float] | None]:
    """Gradients after processes called backward a different number of times, on different parameters."""
    model = _Model()
    runtime.prepare(model, torch.optim.SGD(model.denoiser.values(), lr=1.0))  # type: ignore[arg-type]
    pieces = 3 if runtime.rank else 1
    for piece in range(pieces):
        loss = (runtime.rank + 1.0) * model.denoiser["all"].sum()
        if runtime.rank:
            loss = loss + model.denoiser["one"].sum()
        runtime.backward(loss / pieces, last=piece == pieces - 1)
    return {name: None if p.grad is None else p.grad.tolist() for name, p in model.trainable()}


@dataclass(frozen=True)
class Change:
    """What training did: change of all trained weights as one vector, fingerprints after each update, figures."""

    vector: torch.Tensor
    fingerprints: list[bytes]
    same: list[bool]
    metrics: list[dict[str, float]]


def updates(config: RunConfig, count: int, broken: str = "") -> Change:
    """Train `count` updates, with one thing broken on purpose."""
    folder = Path(config.model)
    with ExitStack() as stack:
        stack.enter_context(breakage(broken))
        runtime = stack.enter_context(Runtime(config, folder))
        run = Run(config, folder, None, runtime, Requests(folder))
        if broken == "own starts":
            with torch.no_grad():
                next(run.model.trainable())[1].add_(0.01 * runtime.rank)
        told: list[dict[str, float]] = []
        stack.enter_context(patch.object(run, "emit", lambda event: told.append(vars(event))))
        training = stack.enter_context(closing(Trainer(run)))
        if broken:  # the engine itself would refuse to go on
            stack.enter_context(patch.object(training.safeguards, "same_weights", lambda: None))
        before = vector(training)
        same, prints = [], []
        for _ in range(count):
            training.one_update()
            same.append(runtime.same_everywhere(training.named.values()))
            prints.append(fingerprint(training.named.values()))
        return Change(vector(training) - before, prints, same, [event for event in told if "grad_norm" in event])


def vector(training: Trainer) -> torch.Tensor:
    """All trained weights as one vector."""
    return torch.cat([weight.detach().double().flatten() for weight in training.named.values()])


@contextmanager
def breakage(name: str) -> Iterator[None]:
    """Within this context one part of the synchronisation is missing."""
    summed, clipped = Runtime._sum_gradients, Runtime.clip_gradients

    def mean(runtime: Runtime) -> None:
        summed(runtime)
        for parameter in runtime._parameters:
            if parameter.grad is not None:
                parameter.grad.div_(runtime.world)

    def apart(rewards: Mapping[str, torch.Tensor], *rest: Any) -> advantage.Advantages:
        halves = [{key: rows.chunk(2)[half] for key, rows in rewards.items()} for half in (0, 1)]
        parts = [advantage.group_advantages(half, *rest) for half in halves]
        return advantage.Advantages(torch.cat([p.values for p in parts]), torch.cat([p.dead for p in parts]))

    def early(runtime: Runtime, parameters: Sequence[torch.nn.Parameter], max_norm: float) -> float:
        norm = clipped(runtime, parameters, max_norm)
        summed(runtime)
        return norm

    changes = {
        "": (Runtime, "_sum_gradients", summed),
        "gradients not summed": (Runtime, "_sum_gradients", lambda runtime: None),
        "averaged instead of summed": (Runtime, "_sum_gradients", mean),
        "advantages per process": (collect, "group_advantages", apart),
        "clipped before summing": (Runtime, "clip_gradients", early),
        "own starts": (Runtime, "broadcast_tensors", lambda runtime, tensors: None),
    }
    target, attribute, replacement = changes[name]
    with ExitStack() as stack:
        stack.enter_context(patch.object(target, attribute, replacement))
        if replacement is early:
            stack.enter_context(patch.object(Runtime, "_sum_gradients", lambda runtime: None))
        yield


def several_updates(jobs: Sequence[tuple[RunConfig, int, str]]) -> list[Change]:
    """Several trainings after each other in the same processes."""
    return [updates(*job) for job in jobs]


def evaluation(folder: Path, prompts: int, keep: int) -> dict[str, Any]:
    """Scores, number of videos kept and forwards of an evaluation."""
    config = config_for(
        folder,
        rewards={"tests.tiny:brightness": 1.0, "colorfulness": 0.0},
        evaluation_steps=3,
        heldout_limit=prompts,
        prompts_per_update=4,
    )
    with Runtime(config, folder) as runtime:
        run = Run(config, folder, None, runtime, Requests(folder))
        result = run.evaluate(run.heldout, keep)
        return {"scores": dict(result.scores), "videos": list(result.videos), "nfe": run.meter.nfe}


def evaluations(folder: Path, sizes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Evaluations of several sizes (prompts, videos kept)."""
    return [evaluation(folder, prompts, keep) for prompts, keep in sizes]


# faults: what scoring the first rollouts does in one process ---------------------------------------------------------


def diverges(*_: Any) -> Any:
    """A failure that no input is to blame for."""
    raise FloatingPointError("the weights have diverged")


def refuses(collector: Collector, plan: Any, frames: torch.Tensor) -> Any:
    """A reward that answers with no numbers is refused."""
    count = len(frames)
    return RewardSet({"tests.tiny:broken": 1.0}).score(VideoBatch(frames, ["a"] * count, [{}] * count, 8.0), count)


def stopped(collector: Collector, plan: Any, frames: torch.Tensor) -> dict[str, torch.Tensor]:
    """This process alone is asked to end; once, as a second signal would kill it."""
    if plan.group == max(collector.run.runtime.own_groups(collector.config.prompts_per_update)):
        os.kill(os.getpid(), signal.SIGTERM)
    return {name: torch.rand(len(frames)) for name in collector.config.rewards}


def drifts(collector: Collector, plan: Any, frames: torch.Tensor) -> dict[str, torch.Tensor]:
    """One bit of this process's weights flips."""
    with torch.no_grad():
        next(collector.run.model.trainable())[1].view(torch.int32).view(-1)[0] ^= 1 << 20
    return {name: torch.rand(len(frames)) for name in collector.config.rewards}


def killed(*_: Any) -> Any:
    """This process is killed, as by a system that ran out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS: dict[str, tuple[Callable[..., Any], int]] = {
    "diverges": (diverges, -1),
    "refuses": (refuses, -1),
    "stopped": (stopped, -1),
    "stopped_main": (stopped, 0),
    "drifts": (drifts, -1),
    "kills_0": (killed, 0),
    "kills_1": (killed, 1),
}
"""Fault and the process it befalls."""
