"""The model card of an export: what it is, what it was made of, what it gained and lost, and how to load it.

README.md with metadata that a hub reads, and pictures beside it. What users wrote is shown as they wrote it and means
nothing to Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.markdown import block, code, plain, table
from flash_grpo.prompts import BUILT_IN as BUILT_IN_PROMPTS
from flash_grpo.prompts import load_prompts
from flash_grpo.report import as_difference, as_number
from flash_grpo.rewards.registry import load_card

README, CURVES, SAMPLE = "README.md", "assets/curves.png", "assets/before-after.webp"
REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
LICENCES = {
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bigscience-openrail-m", "bsd-2-clause", "bsd-3-clause",
    "bsl-1.0", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-4.0",
    "cc0-1.0", "creativeml-openrail-m", "gpl-2.0", "gpl-3.0", "isc", "lgpl-2.1", "lgpl-3.0", "llama3", "mit", "mpl-2.0",
    "openrail", "openrail++", "osl-3.0", "unlicense", "wtfpl", "zlib",
}  # fmt: skip
"""Identifiers of licences that hubs know; any other is named as it is."""
_ADAPTERS = {"adapter": "diffusers", "peft": "peft"}
_SECRET = re.compile(r"(?i)token|secret|password|passwd|api[_-]?key|authorization|credential")


@dataclass(frozen=True)
class Subject:
    """What a card is about. facts: the export's metadata. usage: lines of Markdown that say how to load it.

    pictures: those of CURVES and SAMPLE that lie in the folder.
    """

    run: Path
    name: str
    update: int
    kind: str
    config: RunConfig
    facts: Mapping[str, str]
    usage: Sequence[str]
    pictures: Sequence[str] = ()

    def fact(self, name: str) -> str | None:
        """A fact of the metadata."""
        return self.facts.get(f"flash_grpo.{name}")

    @property
    def heldout(self) -> Mapping[str, Mapping[str, Any]]:
        """Held-out figures per reward; empty where none were measured of this checkpoint."""
        found: Mapping[str, Mapping[str, Any]] = json.loads(self.fact("gains") or "{}")
        return found

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the run's summary says; empty where it has none."""
        try:
            content = json.loads((self.run / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def card(subject: Subject) -> str:
    """The text of README.md."""
    parts = [
        _front_matter(subject),
        [f"# {plain(subject.name)}, update {subject.update}"],
        _what_it_is(subject),
        _sample(subject),
        ["## How to load it", "", *subject.usage],
        _results(subject),
        _training(subject),
        ["## Configuration", "", *block(_configuration(subject), "yaml")],
        _limitations(subject),
        _files(),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _front_matter(subject: Subject) -> list[str]:
    """What hubs read: only what they accept, so a base model that is on none is left to the text."""
    base = subject.fact("base_model") or ""
    metadata: dict[str, Any] = {}
    if REPO.fullmatch(base):
        relation = "adapter" if subject.kind in _ADAPTERS else "finetune"
        metadata |= {"base_model": base, "base_model_relation": relation}
    licence = subject.fact("base_licence")
    if licence is None:
        metadata["license"] = "unknown"
    elif licence.lower() in LICENCES:
        metadata["license"] = licence.lower()
    else:
        metadata |= {
            "license": "other",
            "license_name": re.sub(r"[^a-z0-9.]+", "-", licence.lower()).strip("-") or "other",
        }
    tags = ["text-to-video", "video", "flash-grpo", "reinforcement-learning", "alignment"]
    tags += ["lora"] if subject.kind in _ADAPTERS else []
    tags += ["comfyui"] if subject.kind in ("adapter", "native") else []
    library = _ADAPTERS.get(subject.kind, "diffusers")
    metadata |= {"library_name": library, "pipeline_tag": "text-to-video", "tags": tags}
    return ["---", yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000).rstrip(), "---"]


def _what_it_is(subject: Subject) -> list[str]:
    form = {
        "adapter": "A LoRA adapter, one file for ComfyUI and diffusers,",
        "peft": "A LoRA adapter for PEFT",
        "merged": "A whole diffusers pipeline",
        "native": "A whole model for ComfyUI",
    }[subject.kind]
    optimised = [name for name, weight in subject.config.rewards.items() if weight]
    rewards = ", ".join(plain(name) for name in optimised)
    base, licence = subject.fact("base_model") or "", subject.fact("base_licence")
    config, revision = subject.config, subject.fact("base_revision")
    shift = f", flow shift {config.shift:g}" if config.shift else ""
    lines = [
        f"{form} that aligns the text-to-video model {code(base)} with {rewards} by {subject.update} updates of "
        f"Flash-GRPO, a method of reinforcement learning. Judged at {config.width}x{config.height}, {config.frames} "
        f"frames, {config.evaluation_steps} steps, guidance {config.deployment_guidance():g}{shift}.",
        "",
        f"- Base model: {code(base)}" + (f", revision {code(revision)}" if revision else ""),
        f"- Licence of the base model: {plain(licence) if licence else 'not known, ask its owner before use'}; it "
        "binds what is derived from it",
    ]
    if sha := subject.fact("base_sha256"):
        lines.append(f"- SHA-256 of the base model's denoiser: `{sha}`")
    return lines


def _sample(subject: Subject) -> list[str]:
    if SAMPLE not in subject.pictures:
        return []
    caption = (
        "Before and after on held-out prompts, with the same seeds: the largest gain, the middle one, the smallest."
    )
    return ["## Before and after", "", f"![{caption}]({SAMPLE})", "", caption]


def _results(subject: Subject) -> list[str]:
    heldout, weights = subject.heldout, subject.config.rewards
    lines = ["## Held-out results"]
    if not heldout:
        return [*lines, "", "The run recorded no held-out comparison of this checkpoint with the base model."]
    rows, worse = [], []
    for name in sorted(heldout, key=lambda name: (not weights.get(name), name)):
        figures = heldout[name]
        low, high = figures.get("ci95") or (None, None)
        win = figures.get("win_rate")
        role = "optimised" if weights.get(name) else "watched"
        values = [as_number(figures.get("before")), as_number(figures.get("after")), as_difference(figures.get("gain"))]
        interval = f"{as_difference(low)} to {as_difference(high)}"
        rows.append([plain(name), role, *values, interval, "-" if win is None else f"{100 * win:.0f} %"])
        if high is not None and high < 0:
            worse.append(f"{plain(name)} by {as_number(-figures['gain'])}")
    columns = ["reward", "role", "before", "after", "gain", "95 % interval", "win rate"]
    lost = f"What got worse, beyond chance: {', '.join(worse)}." if worse else "No recorded reward fell beyond chance."
    prompts = _count(subject, subject.config.heldout_prompts, subject.config.heldout_limit)
    about = (
        f"{f'{prompts} prompts' if prompts else 'Prompts'} that were not trained on, the same seeds before and after, "
        "the sampler above. Win rate: share of prompts whose video scores higher, a tie counting half. Watched rewards "
        "were not optimised; they show what it cost."
    )
    return [*lines, "", about, "", *table(columns, rows, numbers=5), "", lost]


def _training(subject: Subject) -> list[str]:
    config, summary = subject.config, subject.summary
    sets = {
        "training": (config.prompts, None),
        "validation": (config.validation_prompts, config.validation_limit),
        "held-out": (config.heldout_prompts, config.heldout_limit),
    }
    data = [[use, *_prompt_set(subject, source, limit)] for use, (source, limit) in sets.items()]
    rewards = [[plain(name), f"{weight:g}", _measures(name)] for name, weight in config.rewards.items()]
    rollouts = config.prompts_per_update * config.group_size
    spent = (
        f" The whole run took {summary['updates']} updates, {summary['minutes']:.1f} minutes and {summary['nfe']:,} "
        "network evaluations."
        if {"updates", "minutes", "nfe"} <= summary.keys()
        else ""
    )
    lines = [
        "## Training",
        "",
        f"{subject.update} updates of {rollouts} rollouts, {config.group_size} for each of {config.prompts_per_update} "
        f"prompts, seed {config.seed}.{spent}",
        "",
        *table(["prompts", "set", "count"], data, numbers=1),
        "",
        *table(["reward", "weight", "measures"], rewards),
    ]
    if CURVES in subject.pictures:
        lines += ["", f"![Rewards, branch steps and gradient over the run]({CURVES})"]
    return lines


def _prompt_set(subject: Subject, source: str, limit: int | None) -> tuple[str, str]:
    count = _count(subject, source, limit)
    name = plain(source) if source in BUILT_IN_PROMPTS else f"a set of one's own, {plain(Path(source).name)}"
    return name, f"{count}" if count else "not known"


def _count(subject: Subject, source: str, limit: int | None) -> int | None:
    """Prompts of a set as the run saw it, whose files lie where it was started; None if they are gone."""
    if source not in BUILT_IN_PROMPTS:
        source = str(subject.run.resolve().parent / source)
    try:
        return len(load_prompts(source, limit))
    except InputError:
        return None


def _measures(name: str) -> str:
    try:
        return plain(load_card(name).measures) if ":" not in name else "a reward of one's own"
    except InputError:
        return "a reward of one's own"


def _limitations(subject: Subject) -> list[str]:
    lines = [
        "- Rewards stand in for what people like; a higher one is not a better video by itself. Look at the videos.",
        "- What lies outside the training prompts, sizes and lengths was not measured.",
    ]
    for name, weight in subject.config.rewards.items():
        if not weight or ":" in name:
            continue
        try:
            exploits = load_card(name).exploits
        except InputError:
            continue
        lines += [f"- {plain(name)} can be gamed: {plain(exploit)}" for exploit in exploits]
    return ["## Limitations", "", *lines]


def _files() -> list[str]:
    check = block("sha256sum -c SHA256SUMS", "bash")
    return [
        "## Files",
        "",
        "`export.json` holds the facts above for programs, `SHA256SUMS` what proves the files whole:",
        "",
        *check,
    ]


def _configuration(subject: Subject) -> str:
    """The run's configuration without places of this machine and without what may be secret."""
    values = subject.config.model_dump(mode="json")
    values["model"] = subject.fact("base_model")
    return yaml.safe_dump(_public(values), sort_keys=False, allow_unicode=True)


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _public(key): "***" if _SECRET.search(str(key)) and item else _public(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_public(item) for item in value]
    if isinstance(value, str):
        path = Path(value)
        value = path.name if path.is_absolute() or value.startswith(("~", "..")) else value
        value = "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in value)
        return re.sub(r"(://)[^/\s@]+@", r"\1***@", value)
    return value
