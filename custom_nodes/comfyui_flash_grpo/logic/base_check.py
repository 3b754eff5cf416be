"""Whether the connected model is the one an adapter was trained on, told by some of its weights, and its expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..shared.sketch import SAME, likeness, places
from .facts import Facts
from .problem import Problem

EXPERTS = ("single model", "high noise expert", "low noise expert")
"""What the connected model is; Wan 2.2 splits its denoiser in two."""
_EXPERT_FACTS = {"": None, "none": EXPERTS[0], "high_noise": EXPERTS[1], "low_noise": EXPERTS[2]}

Numbers = Callable[[str, Sequence[int]], Sequence[float] | None]
"""Numbers of a model's weight at places of it flattened; None where they cannot be read."""


def check_expert(facts: Facts, chosen: str) -> None:
    """Problem if the adapter says it was trained for another expert than the connected one."""
    wanted = _EXPERT_FACTS.get(facts.expert)
    if wanted is not None and wanted != chosen:
        raise Problem(
            f"{facts.file} was trained for a {wanted} and the node is set to {chosen!r}; connect that model and set "
            "`expert` to it"
        )


def check_base(facts: Facts, shapes: Mapping[str, tuple[int, ...]], numbers: Numbers, strict: bool) -> str:
    """A sentence on whether the connected model is the adapter's base; Problem if it surely is not and `strict`.

    `shapes` are the model's weights by native layer name. A file without a sketch cannot be checked beyond its shapes.
    """
    name = facts.base or "unknown"
    if not facts.sketch:
        return f"base {name}: not confirmed, the file holds no sketch of it"
    lowest = 1.0
    for weight, (shape, values) in facts.sketch.items():
        if shapes.get(weight.removesuffix(".weight")) != shape:
            raise Problem(
                f"{facts.file} was trained on {name}, whose {weight} is {list(shape)}, and the connected model has "
                f"another shape there; connect {name}"
            )
        size = 1
        for length in shape:
            size *= length
        found = numbers(weight, places(size))
        if found is None:
            return f"base {name}: not confirmed, the connected model's weights are stored in a way that cannot be read"
        lowest = min(lowest, likeness(values, found))
    if lowest >= SAME:
        return f"base {name}: confirmed by its weights"
    if strict:
        raise Problem(
            f"{facts.file} was trained on {name}, and the connected model has other weights (likeness {lowest:.3f}, at "
            f"least {SAME} expected); connect {name}, or switch `check_base` off to try it on a relative of that model"
        )
    return f"base {name}: the connected model is another one (likeness {lowest:.3f}), as you asked"
