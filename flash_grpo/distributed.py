"""The only file that knows accelerate and process groups: this process's place among the run's processes.

Every process holds the whole model and a share of the groups. Gradients are summed once per update, after its last
backward, so processes may need different numbers of backwards. Every wait for the others is polled: a process that
fails says so in the group's store, and the others end with its sentence instead of hanging.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator, InitProcessGroupKwargs

from flash_grpo.config import RunConfig
from flash_grpo.control import Interrupted
from flash_grpo.errors import InputError
from flash_grpo.models.base import VideoModel
from flash_grpo.models.registry import resolve_device
from flash_grpo.wire import decode, encode

Value = TypeVar("Value")

PATIENCE = timedelta(minutes=30)
_CHECK_SECONDS = 0.2
_BUCKET = 2**24
_CHUNK = 2**22
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_RANK_GIVEN = ("RANK", "LOCAL_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_numbers = itertools.count()


class PeerError(Exception):
    """Another process of the run failed or was lost; the message is its sentence."""


@dataclass(frozen=True)
class _Words:
    """What a failing process leaves for the others."""

    rank: int
    kind: Literal["input", "interrupted", "failed"]
    message: str
    traceback: str

    @classmethod
    def of(cls, rank: int, error: Exception) -> _Words:
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, Interrupted):
            return cls(rank, "interrupted", error.status, trace)
        message = str(error) or type(error).__name__
        return cls(rank, "input" if isinstance(error, InputError) else "failed", message, trace)

    def error(self, world: int) -> Exception:
        """The same error, for a process that is not to blame."""
        if self.kind == "interrupted":
            return Interrupted(self.message)
        if self.kind == "input":
            return InputError(self.message)
        return PeerError(f"process {self.rank} of {world}: {self.message}")


class Runtime:
    """This process's place among the run's processes; alone, nothing is sent and nothing waits.

    Used as a context, outermost in the run: an error that leaves it is told to the other processes.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        _refuse_launch()
        wanted = resolve_device(config.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="OMP_NUM_THREADS")  # accelerate shares the cores out: welcome
            self.accelerator = Accelerator(
                cpu=wanted.type == "cpu",
                log_with=list(config.trackers) or None,
                project_dir=str(folder / "trackers") if config.trackers else None,
                kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
            )
        atexit.unregister(_leave)  # once, however many runs
        atexit.register(_leave)
        self.rank: int = self.accelerator.process_index
        self.world: int = self.accelerator.num_processes
        self.is_main: bool = self.accelerator.is_main_process
        self.device = wanted if self.world == 1 else self.accelerator.device
        self._parameters: list[torch.nn.Parameter] = []
        # One process may have several runs after each other; what is said in one is not heard in the next.
        number = next(_numbers)
        self._failure, self._spoken = f"flash_grpo/{number}/failure", f"flash_grpo/{number}/spoken"
        self._left_alone = False
        # Small things travel between CPUs; on CPUs the default group does that already.
        on_cpu = self.device.type == "cpu" or self.world == 1
        self._cpus = None if on_cpu else dist.new_group(backend="gloo", timeout=PATIENCE)
        if config.prompts_per_update % self.world:
            raise InputError(
                f"prompts_per_update {config.prompts_per_update} does not divide among {self.world} processes; "
                f"use a multiple of {self.world}"
            )

    # work and gradients ------------------------------------------------------------------------------------------

    def prepare(self, model: VideoModel, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Make all processes start from the main one's trained weights; InputError if their base models differ."""
        self._parameters = [parameter for _, parameter in model.trainable()]
        if self.world > 1:
            trained = set(map(id, self._parameters))
            if not self.same_everywhere(p for p in model.denoiser.parameters() if id(p) not in trained):
                raise InputError(
                    "the base model's weights differ between processes; give every machine the same model files"
                )
            self.broadcast_tensors(self._parameters)
        return optimizer

    def own_groups(self, groups: int) -> range:
        """Indices of this process's groups or prompts: a contiguous share of the global order, uneven if it must be."""
        return range(self.rank * groups // self.world, (self.rank + 1) * groups // self.world)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Backward; after the `last` one of an accumulation the gradients are those summed over processes.

        The loss must hold this process's part of the mean over all groups, however many backwards that takes.
        """
        loss.backward()
        if last and self.world > 1:
            self._sum_gradients()

    def _sum_gradients(self) -> None:
        used = torch.tensor([parameter.grad is not None for parameter in self._parameters], dtype=torch.uint8)
        self._wait(lambda: dist.all_reduce(used, dist.ReduceOp.MAX, group=self._cpus, async_op=True))
        parameters = [parameter for parameter, flag in zip(self._parameters, used.tolist(), strict=True) if flag]
        for bucket in _buckets(parameters):
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
            self._all_reduce(flat)
            for parameter, total in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad = total.view_as(parameter).clone()

    def _all_reduce(self, flat: torch.Tensor) -> None:
        self._wait(lambda: dist.all_reduce(flat, async_op=True))

    def clip_gradients(self, parameters: Sequence[torch.nn.Parameter], max_norm: float) -> float:
        """Clip the norm of the summed gradients in place and return the norm before clipping."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        # Norms depend on the number of threads in the last bit, and that bit would drive the processes apart.
        self.broadcast_tensors([norm])
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return float(norm)

    # agreement ---------------------------------------------------------------------------------------------------

    def gather(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Concatenate each tensor [groups of this process, K] over processes, in global group order."""
        if self.world == 1:
            return dict(values)
        parts = self.gather_values({name: tensor.cpu() for name, tensor in values.items()})
        return {name: torch.cat([part[name] for part in parts]) for name in values}

    def broadcast(self, value: Value) -> Value:
        """The main process's value, on every process; what `flash_grpo.wire` can carry, and tuples arrive as lists."""
        if self.world == 1:
            return value
        received: Value = decode(self._send(encode(value if self.is_main else None), 0))
        return received

    def gather_values(self, value: Value, to_main: bool = False) -> list[Value]:
        """Every process's value in order of rank; `to_main` keeps them on the main process, others get none."""
        if self.world == 1:
            return [value]
        own = encode(value)
        received = [self._send(own, rank) for rank in range(self.world)]
        return [decode(data) for data in received] if self.is_main or not to_main else []

    def _send(self, data: bytes, source: int) -> bytes:
        """Bytes of process `source`, on every process."""
        size = torch.tensor([len(data)])
        self._wait(lambda: dist.broadcast(size, source, group=self._cpus, async_op=True))
        content = torch.empty(int(size), dtype=torch.uint8)
        if self.rank == source:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._wait(lambda: dist.broadcast(content, source, group=self._cpus, async_op=True))
        return content.numpy().tobytes()

    @torch.no_grad()
    def broadcast_tensors(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite tensors, the same ones in the same order on every process, with those of the main process."""
        for tensor in tensors if self.world > 1 else ():
            content = tensor.detach().contiguous()
            self._broadcast_tensor(content)
            tensor.copy_(content)

    def _broadcast_tensor(self, content: torch.Tensor) -> None:
        self._wait(lambda: dist.broadcast(content, 0, async_op=True))

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.world > 1:
            self._wait(lambda: dist.barrier(group=self._cpus, async_op=True))

    def same_everywhere(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether the tensors are equal bit for bit on all processes; every process gets the same answer."""
        return self.world == 1 or len(set(self.gather_values(fingerprint(tensors)))) == 1

    # failure -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Close. An error is told to the other processes, which raise it at their next meeting.

        A launcher ends all processes when one of them exits, so the others then wait until the main one has spoken.
        """
        if self.world > 1 and isinstance(error, Exception):
            self._left_alone = True
            if self.is_main:
                with suppress(ValueError):  # not the main thread: signals are the owner's business
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher; the last sentence is still to come
            with suppress(RuntimeError):  # the store lives in the main process or the launcher: they know already
                self._tell(error)
        self.close()

    def _tell(self, error: Exception) -> None:
        store = _store()
        if not store.check([self._failure]):
            store.set(self._failure, json.dumps(asdict(_Words.of(self.rank, error))))
        if self.is_main:
            store.set(self._spoken, "")
            time.sleep(3 * _CHECK_SECONDS)  # the store may live in this process: let the others hear
            return
        limit = time.monotonic() + PATIENCE.total_seconds()
        while not store.check([self._spoken]) and time.monotonic() < limit:
            time.sleep(_CHECK_SECONDS)

    def check_peers(self) -> None:
        """Raise what another process failed with: InputError and Interrupted as such, anything else as PeerError."""
        if self.world > 1 and (words := self._heard()):
            raise words.error(self.world) from PeerError(f"process {words.rank}:\n{words.traceback}")

    def _heard(self) -> _Words | None:
        try:
            store = _store()
            words = _Words(**json.loads(store.get(self._failure))) if store.check([self._failure]) else None
        except RuntimeError as error:
            raise self._lost_contact() from error
        self._left_alone = self._left_alone or words is not None
        return words

    def _wait(self, start: Callable[[], Any]) -> None:
        """Run a collective operation to its end, as long as all processes live."""
        self.check_peers()
        try:
            work = start()
            pause, checked, heard = 1e-4, time.monotonic(), False
            while not work.is_completed():
                time.sleep(pause)
                pause = min(2 * pause, 0.01)
                if time.monotonic() - checked > _CHECK_SECONDS:
                    if heard:
                        self.check_peers()
                    # Whoever failed after doing its part in this operation lets it end: look twice.
                    heard, checked = self._heard() is not None, time.monotonic()
            work.wait()
        except RuntimeError as error:
            self.check_peers()
            raise self._lost_contact() from error

    def _lost_contact(self) -> PeerError:
        self._left_alone = True
        return PeerError(
            f"process {self.rank} of {self.world} lost contact with another one: that was killed, ran out of memory or "
            f"took longer than {PATIENCE.total_seconds() / 60:.0f} minutes; look at its machine, then resume the run"
        )

    # trackers and end --------------------------------------------------------------------------------------------

    def start_trackers(self, config: RunConfig) -> None:
        """Begin to report to the trackers, if any; called once the run folder is this run's own."""
        if config.trackers and self.is_main:
            self.accelerator.init_trackers("flash-grpo", config={k: str(v) for k, v in config.model_dump().items()})

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Send numbers to the trackers, if any."""
        if self.accelerator.trackers:
            self.accelerator.log(dict(values), step=update)

    def close(self) -> None:
        """End the trackers; the process group stays for a next run and ends with the process."""
        for tracker in self.accelerator.trackers:
            tracker.finish()
        if self._left_alone:
            # Destroying the group would wait for operations that the others will never finish.
            atexit.unregister(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _refuse_launch() -> None:
    """Refuse starts that would not train as asked: one process where several were wanted, or sharded weights."""
    environment = os.environ
    chosen = {name for name in environment if environment[name].lower() == "true"}
    if "ACCELERATE_USE_CPU" in chosen and "MASTER_ADDR" in environment and environment.keys().isdisjoint(_RANK_GIVEN):
        raise InputError(
            "`accelerate launch --cpu` starts one process and leaves the others to MPI; "
            "use `accelerate launch --multi_gpu` or torchrun, which start several on CPUs too"
        )
    for name, flag in (("DeepSpeed", "ACCELERATE_USE_DEEPSPEED"), ("FSDP", "ACCELERATE_USE_FSDP")):
        if flag in chosen:
            raise InputError(f"{name} is not supported yet; use `accelerate launch --multi_gpu` or torchrun")


def _store() -> Any:
    """The key-value store through which the processes found each other."""
    return dist.distributed_c10d._get_default_store()


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Consecutive parameters of one dtype, about `_BUCKET` elements together: few messages, little extra memory."""
    bucket: list[torch.nn.Parameter] = []
    for parameter in parameters:
        size = sum(p.numel() for p in bucket)
        if bucket and (size + parameter.numel() > _BUCKET or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


@torch.no_grad()
def fingerprint(tensors: Iterable[torch.Tensor]) -> bytes:
    """32 bytes that change with any bit, place or shape of the tensors; summed where they are, little is moved."""
    digest = hashlib.sha256()
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
        total = torch.zeros((), dtype=torch.int64, device=tensor.device)
        for first in range(0, len(bits), _CHUNK):
            part = bits[first : first + _CHUNK].long()
            # Odd factors: one flipped bit moves the sum (modulo 2**64) wherever it is, and so does a swap.
            total += (part * (2 * torch.arange(first, first + len(part), device=tensor.device) + 1)).sum()
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} {int(total)};".encode())
    return digest.digest()
