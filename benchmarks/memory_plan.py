"""How well plans predict memory: predicted and measured peaks by phase, and the constants fitted on half of the shapes.

    python benchmarks/memory_plan.py [--shapes NAME ...] [--save FILE] [--load FILE] [--default-malloc]

Every shape is a randomly initialised pipeline that runs through the engine's own functions (load and encode, roll out,
decode, replay and step, evaluate) in a process of its own, after a first update on tiny videos, so that gradients and
optimiser state exist and libraries have set themselves up. A peak is VmHWM above the resident memory after the imports,
reset before each phase. Blocks above 64 KB go back to the system when they are freed (MALLOC_MMAP_THRESHOLD_), so that
resident memory is what tensors need and not what glibc keeps for later; `--default-malloc` leaves that out and shows
what a user's process then holds. The constants are fitted on the shapes marked `fit`; the errors of the others tell
what a prediction is worth.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
PHASES = ("rollout", "decode", "replay", "evaluate")
PROMPTS = 64
MEGA = 1e6
COMMON: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "max_sequence_length": 24,
    "prompts_per_update": 2,
    "group_size": 2,
    "sampling_steps": 2,
    "candidate_steps": [0],
    "guidance_scale": 3,
    "rollout_batch": 4,
    "decode_batch": 2,
    "replay_batch": 2,
    "evaluation_steps": 2,
}
TINY = {"height": 32, "width": 32, "frames": 5}


@dataclass(frozen=True)
class Shape:
    """A pipeline's widths and a run's configuration beside COMMON; `fit` shapes are those the constants come from."""

    name: str
    fit: bool
    heads: int
    head_dim: int
    layers: int
    ffn: int
    decoder: int
    config: dict[str, Any] = field(default_factory=dict)
    text_dim: int = 256
    residual_blocks: int = 2


def size(height: int, width: int, frames: int, **more: Any) -> dict[str, Any]:
    """Configuration of a video size."""
    return {"height": height, "width": width, "frames": frames, **more}


FFN = ["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj", "ffn.net.2"]
POCKET = {"prompts_per_update": 8, "group_size": 12, "rollout_batch": 96, "replay_batch": 8, "decode_batch": 16}
FEW = {"prompts_per_update": 1, "rollout_batch": 2}
SHAPES = (
    Shape("pocket", True, 2, 128, 4, 1024, 8, size(32, 32, 9, **POCKET), 4096),
    Shape("micro", False, 2, 32, 2, 128, 4, size(32, 32, 9), 128, 1),
    Shape("lora-s", False, 4, 64, 6, 1024, 8, size(128, 128, 17)),
    Shape("lora-m", True, 6, 64, 8, 2240, 8, size(160, 160, 17)),
    Shape("lora-l", False, 8, 64, 8, 2048, 16, size(192, 256, 17, replay_batch=1)),
    Shape("lora-xl", True, 4, 64, 12, 1536, 8, size(256, 320, 17)),
    Shape("lora-xxl", False, 6, 64, 12, 2240, 8, size(256, 320, 17)),
    Shape("checkpointing-m", True, 4, 64, 12, 1024, 8, size(192, 192, 17, gradient_checkpointing=True)),
    Shape("checkpointing-l", False, 4, 64, 16, 2240, 8, size(320, 320, 17, gradient_checkpointing=True)),
    Shape("full-s", True, 6, 64, 4, 1024, 8, size(96, 96, 17, adapter="full")),
    Shape("full-m", False, 4, 64, 6, 1024, 8, size(128, 128, 17, adapter="full")),
    Shape("full-l", True, 6, 64, 6, 1536, 8, size(96, 96, 17, adapter="full", replay_batch=1)),
    Shape("full-sparing", False, 4, 64, 8, 1536, 8, size(128, 128, 17, adapter="full", gradient_checkpointing=True)),
    Shape("full-kl-ema", True, 4, 64, 4, 1024, 8, size(96, 96, 17, adapter="full", kl_weight=0.1, ema_decay=0.9)),
    Shape("lora-kl-ema", False, 4, 64, 4, 1024, 8, size(96, 128, 17, kl_weight=0.1, ema_decay=0.9)),
    Shape("decode-m", True, 2, 64, 2, 256, 32, size(96, 128, 9, **FEW)),
    Shape("decode-l", False, 2, 64, 2, 256, 48, size(96, 128, 5, **FEW)),
    Shape("decode-xl", True, 2, 64, 2, 256, 96, size(64, 96, 5, **FEW)),
    Shape("decode-long", False, 2, 64, 2, 256, 16, size(96, 96, 33, **FEW)),
    Shape("independent", True, 4, 64, 4, 1024, 8, size(96, 96, 17, initial_noise="independent", replay_batch=4)),
    Shape("no-guidance", False, 4, 64, 4, 1024, 8, size(160, 160, 17, guidance_scale=1)),
    Shape("ffn-lora", True, 4, 64, 4, 2048, 8, size(96, 128, 17, lora_targets=FFN, lora_rank=64)),
    Shape("long-text", False, 4, 64, 4, 1024, 8, size(64, 64, 9, max_sequence_length=256), 1024),
    Shape("wide-rollout", True, 4, 64, 2, 2048, 8, size(128, 160, 17, group_size=4, rollout_batch=8, replay_batch=1)),
    Shape("bfloat16-lora", True, 4, 64, 6, 1024, 8, size(96, 128, 17, dtype="bfloat16")),
    Shape("bfloat16-full", False, 4, 64, 6, 1024, 8, size(96, 96, 17, dtype="bfloat16", adapter="full")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", metavar="NAME", default=[shape.name for shape in SHAPES])
    parser.add_argument("--save", type=Path, help="write the measurements as JSON")
    parser.add_argument("--load", type=Path, help="compare with measurements made before")
    parser.add_argument("--default-malloc", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--build", nargs="+", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    by_name = {shape.name: shape for shape in SHAPES}
    if arguments.build:
        for name in arguments.build[1:]:
            build(by_name[name], Path(arguments.build[0]) / name)
        return
    if arguments.one:
        print(json.dumps(measure(by_name[arguments.one[0]], Path(arguments.one[1]))))
        return
    measured = json.loads(arguments.load.read_text()) if arguments.load else {}
    todo = [name for name in arguments.shapes if name not in measured]
    for name, peaks in measure_apart(todo, arguments.default_malloc):
        measured[name] = peaks
        if arguments.save:
            arguments.save.write_text(json.dumps(measured, indent=1))
    report({name: measured[name] for name in arguments.shapes}, by_name)


def measure_apart(names: Sequence[str], default_malloc: bool) -> Iterator[tuple[str, dict[str, float]]]:
    """Peaks of shapes: one process writes all pipelines, then each shape runs in one of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if names:
            run_apart("--build", folder, *names)
        for name in names:
            yield name, peaks_apart(name, Path(folder) / name, default_malloc)


def peaks_apart(name: str, folder: Path, default_malloc: bool = False) -> dict[str, float]:
    """Peaks of a shape whose pipeline is in `folder`, measured in a fresh process."""
    peaks: dict[str, float] = json.loads(run_apart("--one", name, str(folder), default_malloc=default_malloc))
    return peaks


def run_apart(*arguments: str, default_malloc: bool = False) -> str:
    """The last line that this file prints when run at low priority with these arguments."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "TRANSFORMERS_VERBOSITY": "error"}
    environment.update({} if default_malloc else MALLOC)
    command = ["nice", "-n", "15", sys.executable, __file__, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return output.splitlines()[-1] if output else ""


def build(shape: Shape, folder: Path) -> None:
    """Save a randomly initialised pipeline."""
    from diffusers import WanPipeline

    from flash_grpo.models.pocket import architecture

    widths = architecture.Size(
        heads=shape.heads,
        head_dim=shape.head_dim,
        layers=shape.layers,
        ffn_dim=shape.ffn,
        text_dim=shape.text_dim,
        text_heads=2,
        autoencoder_width=shape.decoder,
        residual_blocks=shape.residual_blocks,
    )
    WanPipeline(
        tokenizer=architecture.build_tokenizer(),
        text_encoder=architecture.build_text_encoder(widths),
        transformer=architecture.build_denoiser(widths),
        vae=architecture.build_autoencoder(widths),
        scheduler=architecture.build_scheduler(),
    ).save_pretrained(folder)


def configuration(shape: Shape, folder: Path) -> Any:
    """The shape's run configuration."""
    from flash_grpo.config import build_config

    return build_config("micro", {**COMMON, "model": str(folder), **shape.config})


class Watch:
    """Peaks of resident memory above what was there at the start, in bytes."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self.reset()
        self.start = self._status("VmRSS")

    def reset(self) -> None:
        """Forget the peak so far; what was freed goes back to the system first."""
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")

    def note(self, phase: str) -> None:
        """Record the peak since the last reset."""
        self.peaks[phase] = max(self.peaks.get(phase, 0.0), self._status("VmHWM") - self.start)
        self.reset()

    @staticmethod
    def _status(key: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measure(shape: Shape, folder: Path) -> dict[str, float]:
    """Peaks of one shape by phase, in this process."""
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import torch
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel  # noqa: F401
    from transformers import PreTrainedTokenizerFast, UMT5EncoderModel  # noqa: F401

    from flash_grpo.models.registry import load_model
    from flash_grpo.optimizer import WeightAverage, build_optimizer
    from flash_grpo.prompts import load_prompts
    from flash_grpo.rollout import Meter, build_sampler

    config = configuration(shape, folder)
    torch.set_num_threads(1)
    texts = [prompt.text for prompt in load_prompts("pocket:train", PROMPTS)]
    watch = Watch()
    model = load_model(config)
    embeddings = model.encode_prompts(texts, "")
    model.free_text_encoder()
    watch.note("setup")
    if config.adapter == "lora":
        model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, config.lora_init)
    else:
        model.train_all(keep_base=config.kl_weight > 0)
    if config.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    named = dict(model.trainable())
    optimizer = build_optimizer(config, list(named.values()))
    average = WeightAverage(named, config.ema_decay) if config.ema_decay else None
    tiny = config.model_copy(update=TINY)
    Update(tiny, model, build_sampler(tiny, model), embeddings, optimizer, Meter(), watch).run(0)
    watch.peaks = {"setup": watch.peaks["setup"]}
    update = Update(config, model, build_sampler(config, model), embeddings, optimizer, Meter(), watch)
    update.run(1)
    if average is not None:
        with average.swapped_in(named):
            update.evaluate()
    else:
        update.evaluate()
    return watch.peaks


@dataclass
class Update:
    """One update as `Trainer` makes it, phase by phase; nothing is scored."""

    config: Any
    model: Any
    sampler: Any
    embeddings: Any
    optimizer: Any
    meter: Any
    watch: Watch

    def run(self, number: int) -> None:
        """Roll out, decode, replay, step."""
        import torch

        from flash_grpo.replay import ReplaySettings, replay
        from flash_grpo.rollout import GroupPlan, GroupRollout, roll_out

        config, model = self.config, self.model
        groups = config.prompts_per_update
        steps = config.candidates()
        plans = [GroupPlan(group, group, steps[group % len(steps)]) for group in range(groups)]
        at_once = max(1, config.rollout_batch // config.group_size)
        rollouts: list[GroupRollout] = []
        frames: list[torch.Tensor] = []
        for start in range(0, groups, at_once):
            part = plans[start : start + at_once]
            done = roll_out(model, self.sampler, self.embeddings, part, number, self.meter)
            self.watch.note("rollout")
            for rollout in done:
                pieces = torch.cat([model.decode(p) for p in rollout.latents.split(config.decode_batch)])
                frames = [*frames[-1:], pieces]  # one group is scored while the next one is decoded
            self.watch.note("decode")
            rollouts.extend(done)
        frames.clear()
        del pieces, done, rollout
        self.optimizer.zero_grad(set_to_none=True)
        self.watch.reset()
        advantages = torch.randn(groups, config.group_size)
        settings = ReplaySettings(config.replay_batch, config.clip, config.kl_weight, model.backward_cost)
        backward: Callable[..., None] = lambda loss, last: loss.backward()  # noqa: E731
        replay(model, self.sampler, self.embeddings, rollouts, advantages, groups, settings, backward, self.meter)
        self.optimizer.step()
        self.watch.note("replay")

    def evaluate(self) -> None:
        """Deploy and decode one evaluation batch, as `evaluate` does."""
        import torch

        from flash_grpo.evaluate import deploy

        config = self.config
        count = min(config.rollout_batch, config.decode_batch * 4, PROMPTS)
        noise = torch.randn((count, *self.sampler.latent_shape))
        latents = deploy(self.model, config, self.embeddings, range(count), noise, self.meter)
        torch.cat([self.model.decode(piece) for piece in latents.split(config.decode_batch)])
        self.watch.note("evaluate")


def predict(shape: Shape) -> Any:
    """The shape's planned footprint, from configurations alone."""
    from flash_grpo.planning.architecture import Autoencoder, Denoiser, Pipeline, TextEncoder
    from flash_grpo.planning.footprint import footprint
    from flash_grpo.planning.workload import workload
    from flash_grpo.prompts import load_prompts

    config = configuration(shape, Path("unused"))
    pipeline = Pipeline(
        Denoiser(shape.layers, shape.heads, shape.head_dim, shape.ffn, 16, 16, shape.text_dim, 256, (1, 2, 2), True),
        Autoencoder(shape.decoder, shape.decoder, 16, (1, 2, 4, 4), shape.residual_blocks, (False, True, True), 3, 3),
        TextEncoder(2, shape.text_dim, 2, 16, 32, 64, 32, True),
    )
    texts = [prompt.text for prompt in load_prompts("pocket:train", PROMPTS)]
    return footprint(config, pipeline, workload(config, pipeline, 1, PROMPTS), texts, 0.0, "cpu")


def fit(measured: dict[str, dict[str, float]], shapes: dict[str, Shape]) -> dict[str, float]:
    """Constants that minimise the relative errors of the `fit` shapes, by weighted least squares."""
    import numpy as np

    from flash_grpo import footprint as planned

    scaled = {
        "forward": ("FORWARD_FIT", planned.FORWARD_FIT),
        "decoding": ("DECODE_FIT", planned.DECODE_FIT),
        "forward and backward": ("BACKWARD_FIT", planned.BACKWARD_FIT),
    }
    runtimes = {"runtime": "CPU_RUNTIME", "solver": "SOLVER_RUNTIME", "bfloat16 kernels": "BFLOAT16_RUNTIME"}
    names = [*runtimes.values(), *(name for name, _ in scaled.values())]
    rows, targets = [], []
    for name, peaks in measured.items():
        if not shapes[name].fit:
            continue
        for phase in PHASES:
            parts = dict(predict(shapes[name]).phases[phase])
            row = dict.fromkeys(names, 0.0)
            for part, constant in runtimes.items():
                row[constant] = MEGA if parts.pop(part, 0.0) else 0.0
            for part, (constant, present) in scaled.items():
                row[constant] += parts.pop(part, 0.0) / present
            rows.append([row[key] / peaks[phase] for key in names])
            targets.append((peaks[phase] - sum(parts.values())) / peaks[phase])
    solution = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]
    found = dict(zip(names, (float(value) for value in solution), strict=True))
    return {name: value * (MEGA if name in runtimes.values() else 1.0) for name, value in found.items()}


def report(measured: dict[str, dict[str, float]], shapes: dict[str, Shape]) -> None:
    """Print fitted constants, and predicted and measured peaks with their errors."""
    if sum(shapes[name].fit for name in measured) > 3:
        print("fitted on the `fit` shapes:", {k: round(v, 3) for k, v in fit(measured, shapes).items()})
    print("| shape | " + " | ".join(f"{phase} MB" for phase in (*PHASES, "peak")) + " |")
    print("|---" * (len(PHASES) + 2) + "|")
    errors: dict[bool, list[float]] = {True: [], False: []}
    spans: list[float] = []
    for name, peaks in measured.items():
        planned = {phase: predict(shapes[name]).peak(phase) for phase in PHASES}
        cells = [(planned[phase], peaks[phase]) for phase in PHASES]
        cells.append((max(planned.values()), max(peaks[phase] for phase in PHASES)))
        spans.append(cells[-1][1])
        errors[shapes[name].fit].append(cells[-1][0] / cells[-1][1] - 1)
        shown = " | ".join(f"{a / 1e6:.0f} / {b / 1e6:.0f} ({100 * (a / b - 1):+.0f} %)" for a, b in cells)
        print(f"| {name}{' (fit)' if shapes[name].fit else ''} | {shown} |")
    for fitted, label in ((True, "fit"), (False, "rest")):
        if errors[fitted]:
            sizes = [abs(error) for error in errors[fitted]]
            print(f"{label}: mean |error| of the peak {mean(sizes):.1%}, worst {max(sizes):.1%}, {len(sizes)} shapes")
    print(
        f"measured peaks span {min(spans) / 1e6:.0f} to {max(spans) / 1e6:.0f} MB, {max(spans) / min(spans):.0f} times"
    )


if __name__ == "__main__":
    main()
