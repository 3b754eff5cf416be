"""What a trainer must remember to go on exactly where it was: optimiser moments, random states, counters."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from flash_grpo.errors import InputError

VERSION = 1
SEPARATOR = "|"


@dataclass
class Course:
    """Where a run stands: updates done, the gains of its validations so far, and what it has spent.

    validations: (update, gain in spreads of the base) in order. seconds: training time over all attempts.
    """

    update: int = 0
    validations: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0
    nfe: int = 0
    cost: float = 0.0

    @property
    def best_update(self) -> int:
        """Update of the best validation above the base model; 0 if none was."""
        best = max(self.validations, key=lambda entry: entry[1], default=(0, 0.0))
        return best[0] if best[1] > 0 else 0

    @property
    def since_best(self) -> int:
        """Validations after the best one."""
        return sum(update > self.best_update for update, _ in self.validations)

    @property
    def validated_at(self) -> int:
        """Update of the last validation; 0 before the first."""
        return self.validations[-1][0] if self.validations else 0


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The optimiser's state as flat tensors, `NAME|KEY`, for parameters in the order of `names`."""
    state: Mapping[int, Mapping[str, Any]] = optimizer.state_dict()["state"]
    flat = {}
    for index, entries in state.items():
        for key, value in entries.items():
            if value is not None:
                flat[names[index] + SEPARATOR + key] = torch.as_tensor(value).detach().cpu().contiguous().clone()
    return flat


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Sequence[str], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Put the state of `optimizer_tensors` back; InputError if it belongs to other parameters."""
    positions = {name: index for index, name in enumerate(names)}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(SEPARATOR)
        if name not in positions:
            raise InputError(f"the saved optimiser state names the parameter {name!r}, which this model does not train")
        state.setdefault(positions[name], {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def random_tensors() -> dict[str, torch.Tensor]:
    """States of torch's generators, on the CPU and on every GPU in use."""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.update({f"cuda{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())})
    return states


def state_document(course: Course, config: Mapping[str, Any]) -> str:
    """JSON with everything that is no tensor: counters, configuration, random states of Python and NumPy."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    document = {
        "version": VERSION,
        "course": asdict(course),
        "config": dict(config),
        "python_random": [version, list(words), gauss],
        "numpy_random": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }
    return json.dumps(document)


def read_document(text: str) -> dict[str, Any]:
    """Parse `state_document`; InputError if it is of another version."""
    document: dict[str, Any] = json.loads(text)
    if document.get("version") != VERSION:
        raise InputError(
            f"the checkpoint's state has format {document.get('version')!r}, this version reads {VERSION}; "
            "go on with the version that wrote it, or start a new run"
        )
    return document


def restored_course(document: Mapping[str, Any]) -> Course:
    """The counters of a state document."""
    fields = dict(document["course"])
    fields["validations"] = [(int(update), float(gain)) for update, gain in fields["validations"]]
    return Course(**fields)


def restore_random(document: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Put all random states back."""
    version, words, gauss = document["python_random"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = document["numpy_random"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(tensors["torch"])
    for name, state in tensors.items():
        if name.startswith("cuda"):
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))
