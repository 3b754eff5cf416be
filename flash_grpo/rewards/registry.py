"""Rewards by name or by import path; cards are read without torch."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from flash_grpo.errors import InputError, unknown_name

if TYPE_CHECKING:
    import torch

    from flash_grpo.rewards.base import Reward, VideoBatch

CARDS = Path(__file__).parent / "cards"


@dataclass(frozen=True)
class Option:
    """One option of a reward: its default and what it does."""

    default: bool | int | float | str
    help: str


@dataclass(frozen=True)
class Cost:
    """Measured on one CPU core: seconds for a pocket clip (9 frames of 32x32) and for 81 frames of 832x480.

    None where the reward does not read such videos or was never run on them. `memory_mb` is what it holds beyond the
    video itself.
    """

    pocket_seconds: float | None
    video_seconds: float | None
    memory_mb: int | None


@dataclass(frozen=True)
class WeightFile:
    """One file of weights: its name in the repository, its bytes, its SHA-256; None what is not known.

    `becomes` names the safetensors file that `flash-grpo rewards convert` makes of it, None where it is one already.
    """

    name: str
    size: int | None
    sha256: str | None
    becomes: str | None = None


@dataclass(frozen=True)
class Weights:
    """Weights that are loaded: `repo` of a hub at `revision` (None: its newest), and the files needed from it."""

    repo: str
    revision: str | None
    files: tuple[WeightFile, ...]

    @property
    def size(self) -> int:
        """Bytes to download, as far as they are known."""
        return sum(file.size or 0 for file in self.files)


@dataclass(frozen=True)
class Card:
    """What is to be known about a reward before choosing it.

    `range` holds the lowest and highest value, None where unbounded. `per` says if it looks at frames one by one or at
    a video as a whole. `available` is False where the reward only comes with a later release. `requires` names the
    extra of this package to install, `environment` the reward's own environment (None: the main one), `device` what it
    needs at least; `asks_server` is True where it asks an endpoint of one's own. `memory_mb` is what its device must
    hold with the real weights, estimated from their size unless `real_weights` says they were run.

    `upstream_equality` tells how close it comes to upstream's own code on random weights, `real_weights` whether it was
    run with the real ones; both begin with "verified" or "unverified", and are None where there is nothing to compare.
    """

    name: str
    title: str
    measures: str
    badge: Literal["motion", "aesthetic", "text", "composition"]
    range: tuple[float | None, float | None]
    per: Literal["frame", "video"]
    higher_is_better: bool
    groupwise: bool
    cost: Cost
    exploits: tuple[str, ...]
    options: Mapping[str, Option]
    licence: str
    available: bool
    requires: str | None
    implementation: str | None
    paper: str | None = None
    weights: tuple[Weights, ...] = ()
    memory_mb: int | None = None
    device: Literal["cpu", "gpu"] = "cpu"
    environment: str | None = None
    asks_server: bool = False
    tested_versions: Mapping[str, str] = field(default_factory=dict)
    upstream_equality: str | None = None
    real_weights: str | None = None

    @property
    def verified(self) -> bool:
        """Whether the real path, with its real weights if it has any, was ever run by us."""
        return self.real_weights is None or self.real_weights.startswith("verified")


def available() -> dict[str, Card]:
    """All cards by name, those of rewards still to come included (`Card.available` tells them apart)."""
    return {path.stem: load_card(path.stem) for path in sorted(CARDS.glob("*.yaml"))}


@cache
def load_card(name: str) -> Card:
    """The card of one built-in reward. Raises InputError, suggesting the nearest names, if there is none."""
    known = [path.stem for path in CARDS.glob("*.yaml")]
    if name not in known:
        raise unknown_name("reward", name, known)
    data: dict[str, Any] = yaml.safe_load((CARDS / f"{name}.yaml").read_text(encoding="utf-8"))
    data["range"] = tuple(data["range"])
    data["cost"] = Cost(**data["cost"])
    data["exploits"] = tuple(data["exploits"])
    data["options"] = {key: Option(**value) for key, value in data["options"].items()}
    data["weights"] = tuple(_weights(entry) for entry in data.get("weights", ()))
    return Card(name=name, **data)


def _weights(entry: Mapping[str, Any]) -> Weights:
    files = tuple(WeightFile(**file) for file in entry["files"])
    return Weights(entry["repo"], entry.get("revision"), files)


def create(name: str, options: Mapping[str, object] | None = None) -> Reward:
    """Make a reward from its name, or from an import path `my_module:my_reward`.

    Behind an import path stands a class, a factory without required arguments, a ready reward, or a plain function
    from VideoBatch to one float per video. Raises InputError for unknown names and options.
    """
    if ":" in name:
        return _from_path(name, options or {})
    card = load_card(name)
    if not card.available or card.implementation is None:
        raise InputError(
            f"reward {name!r} comes with a later release; choose another one or override `rewards` in the configuration"
        )
    checked = _checked(card, options or {})
    module, attribute = card.implementation.split(":")
    reward: Reward = getattr(importlib.import_module(module), attribute)(**checked)
    return reward


def _checked(card: Card, options: Mapping[str, object]) -> dict[str, object]:
    """The options, each known to the card and of its default's type."""
    for key, value in options.items():
        if key not in card.options:
            if not card.options:
                raise InputError(f"reward {card.name!r} has no options, got {key!r}; leave it out")
            raise unknown_name(f"option of reward {card.name!r}", key, card.options)
        wanted = type(card.options[key].default)
        number = wanted is float and isinstance(value, int) and not isinstance(value, bool)
        if type(value) is not wanted and not number:
            raise InputError(
                f"option {key!r} of reward {card.name!r} expects {wanted.__name__}, got {value!r}; "
                f"its default is {card.options[key].default!r}"
            )
    return dict(options)


def _from_path(path: str, options: Mapping[str, object]) -> Reward:
    target = _resolve(path)
    if not inspect.isclass(target) and hasattr(target, "score"):
        if options:
            raise InputError(f"{path!r} is a ready reward and takes no options, got {sorted(options)}; leave them out")
        reward = target
    elif not callable(target):
        raise InputError(f"{path!r} is a {type(target).__name__}; expected a reward class, a factory or a function")
    elif not _has_signature(target):
        raise InputError(f"{path!r} does not say what it takes; wrap it in a Python function from videos to floats")
    elif not inspect.isclass(target) and _takes_videos(target):
        reward = FunctionReward(target, options)
    else:
        reward = _call(path, target, options)
    if not callable(getattr(reward, "score", None)):
        raise InputError(f"{path!r} gave a {type(reward).__name__} without a method `score(videos)`; add one")
    if not isinstance(getattr(reward, "groupwise", None), bool):
        raise InputError(f"the reward behind {path!r} does not say if it is `groupwise`; set it to True or False")
    made: Reward = reward
    return made


def _resolve(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"expected an import path like 'my_module:my_reward', got {path!r}")
    # An installed command does not look into the folder it is called from, where a user's own reward usually lies.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            raise InputError(
                f"reward {path!r}: no module {missing!r}; run from the folder that holds it or install it"
            ) from error
        raise InputError(
            f"reward {path!r}: its module was found but cannot be imported ({_place(error)}); mend the module"
        ) from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise unknown_name(f"name in module {module_name!r}", part, [n for n in vars(target) if n[0] != "_"])
        target = getattr(target, part)
    return target


def _has_signature(target: Callable[..., Any]) -> bool:
    """Some functions written in C do not tell their parameters."""
    try:
        inspect.signature(target)
    except ValueError:
        return False
    return True


def _takes_videos(function: Callable[..., Any]) -> bool:
    """Whether a function must be given something in place: then that is the videos; a factory needs nothing."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind in places and p.default is inspect.Parameter.empty for p in parameters)


def _call(path: str, factory: Callable[..., Any], options: Mapping[str, object]) -> Any:
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise InputError(f"reward {path!r} does not accept the options {sorted(options)}: {error}") from error
    try:
        return factory(**options)
    except InputError:
        raise
    except Exception as error:
        raise RuntimeError(f"reward {path!r} could not be made ({_place(error)}); mend it") from error


def _place(error: Exception) -> str:
    """An error of a user's code as part of a sentence: what it says, and the line it came from."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError):  # says itself where it is
        return text
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text}, at {Path(frame.filename).name} line {frame.lineno}"


class FunctionReward:
    """A plain function as a reward; it is groupwise if it carries an attribute `groupwise` that is true."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, object]) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        try:
            inspect.signature(function).bind(None, **options)
        except TypeError as error:
            raise InputError(
                f"reward function {self._name!r} does not accept the options {sorted(options)}: {error}"
            ) from error
        self.groupwise = bool(getattr(function, "groupwise", False))
        self._function = function
        self._options = dict(options)

    def score(self, videos: VideoBatch) -> torch.Tensor:
        """Whatever the function answers, as a float32 tensor; InputError if it is nothing like numbers."""
        import torch

        answer = self._function(videos, **self._options)
        try:
            tensor = torch.as_tensor(answer)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"reward function {self._name!r} answered with a {type(answer).__name__} that is no list of numbers; "
                "return one float per video"
            ) from error
        return tensor if tensor.is_complex() else tensor.float()
