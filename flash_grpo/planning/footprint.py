"""How much memory a run needs, by phase and part, from configurations alone. Imports no torch.

What is alive at the peak of a phase is counted: the coefficients below are numbers of tensors, read off the networks by
running them on tensors without data, so they hold at any size. Constants that cannot be counted (what libraries keep
for themselves, scratch memory of kernels) are fitted to measured peaks by `benchmarks/memory_plan.py`.

They were measured on a CPU: memory is resident memory above what is there after the imports, attention runs as flash
attention, whose scratch memory does not grow with the square of the tokens, and every freed tensor goes back to the
system. By its defaults glibc keeps freed blocks below 32 MB for itself: a process may then hold up to 2.3 times as much
as planned here (measured; `MALLOC_MMAP_THRESHOLD_=1048576` in the environment prevents it for a third more CPU time).

On a GPU the tensors are the same but for three things: the CUDA context and the allocator's rounding are added
(`GPU_CONTEXT`, `GPU_ROUNDING`), both assumed, not measured; normalisations are fused and keep a little less than
planned here; and cuDNN may take more scratch memory for the autoencoder's convolutions. What rests on the CPU there
(prompt embeddings, frames, rewards) is planned as `host`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flash_grpo.config import RunConfig
from flash_grpo.planning.architecture import Autoencoder, Denoiser, Pipeline, TextEncoder
from flash_grpo.planning.workload import Workload

Kind = Literal["cpu", "gpu"]
Parts = Mapping[str, float]

ENCODE_BATCH = 32
"""Prompts that `WanModel.encode_prompts` encodes at once."""

# Fitted by benchmarks/memory_plan.py on half of its shapes (one CPU, torch 2.13).
CPU_RUNTIME = 67e6
SOLVER_RUNTIME = 15e6
BFLOAT16_RUNTIME = 60e6
"""Bytes that torch and its kernels take at first use (code pages, primitives, thread buffers), and what the deployment
sampler's linear algebra and bfloat16 kernels add."""
FORWARD_FIT = 0.94
BACKWARD_FIT = 1.00
DECODE_FIT = 1.03
"""Measured over counted bytes of a forward, of a forward with backward, of a decode."""

GPU_CONTEXT = 0.8e9
GPU_ROUNDING = 1.05
"""Assumed: CUDA context with library workspaces, and what the caching allocator rounds up."""


@dataclass(frozen=True)
class Coefficients:
    """Tensors alive at the peaks of a denoiser, in elements of the compute precision.

    A pair (w, f) means w * width + f * ffn elements per video token; where several are listed, each is the peak of some
    operation and the largest counts. `kept` is what a layer leaves for the backward; `text_*` count widths per text
    token.
    """

    forward: tuple[tuple[float, float], ...]
    kept: tuple[float, float]
    outside: float
    backward: tuple[tuple[float, float], ...]
    recompute: tuple[tuple[float, float], ...]
    text_forward: float
    text_kept: float
    text_outside: float
    text_backward: float


COUNTED: Mapping[tuple[str, str], Coefficients] = {
    ("float32", "lora"): Coefficients(
        forward=((9.2, 0.0), (4.2, 2.0)),
        kept=(14.1, 1.0),
        outside=0.75,
        backward=((3.75, 0.0), (0.0, 2.0)),
        recompute=((16.1, 2.0), (13.1, 3.0)),
        text_forward=5.0,
        text_kept=3.0,
        text_outside=1.0,
        text_backward=4.0,
    ),
    ("float32", "full"): Coefficients(
        forward=((7.7, 0.0), (4.2, 2.0)),
        kept=(22.1, 2.0),
        outside=3.75,
        backward=((2.0, 0.0), (-1.9, 1.0)),
        recompute=((21.1, 2.0), (19.1, 3.0)),
        text_forward=5.0,
        text_kept=4.0,
        text_outside=3.0,
        text_backward=3.0,
    ),
    ("bfloat16", "lora"): Coefficients(
        forward=((11.4, 0.0), (4.4, 2.0)),
        kept=(24.2, 1.0),
        outside=1.5,
        backward=((8.75, 0.0), (-1.0, 2.0)),
        recompute=((32.2, 1.0), (23.2, 3.0)),
        text_forward=9.0,
        text_kept=6.0,
        text_outside=1.0,
        text_backward=9.0,
    ),
    ("bfloat16", "full"): Coefficients(
        forward=((11.4, 0.0), (4.4, 2.0)),
        kept=(34.2, 2.0),
        outside=6.9,
        backward=((5.0, 0.0),),
        recompute=((36.3, 2.0), (29.5, 3.0)),
        text_forward=9.0,
        text_kept=6.0,
        text_outside=3.0,
        text_backward=7.0,
    ),
}

DECODER_ALIVE = (5.9, 23.4, 26.4)
"""Values per full-resolution pixel and width of the last stage that a decode of 1, 2, 3 or more latent frames holds at
its peak, beside the caches of its causal convolutions and the frames it has made."""

ROLLOUT_LATENTS, VELOCITY_LATENTS, LOSS_LATENTS, SOLVER_LATENTS = 6, 4, 4, 6
"""Copies of latents alive: per state in flight, per video of a forward, per rollout in the loss, per video deployed."""


def precision_bytes(dtype: str) -> int:
    """Bytes per element."""
    return 4 if dtype == "float32" else 2


def trained_parameters(config: RunConfig, denoiser: Denoiser) -> int:
    """Parameters that train, kept in float32."""
    if config.adapter == "lora":
        return denoiser.lora_parameters(config.lora_rank, config.lora_targets)
    return denoiser.parameters()


def denoiser_bytes(config: RunConfig, denoiser: Denoiser) -> float:
    """The denoiser's weights as loaded: in the run's precision but for what stays float32."""
    exact = denoiser.float32_parameters()
    return 4.0 * exact + precision_bytes(config.dtype) * (denoiser.parameters() - exact)


def resident(config: RunConfig, pipeline: Pipeline) -> dict[str, float]:
    """What stays on the device from set-up to end, once the first update is done."""
    denoiser = pipeline.denoiser
    trained = 4.0 * trained_parameters(config, denoiser)
    parts = {"denoiser": denoiser_bytes(config, denoiser), "autoencoder": 4.0 * pipeline.autoencoder.parameters()}
    if config.adapter == "lora":
        parts["adapter"] = trained
    else:
        if config.kl_weight > 0:
            parts["base copy"] = parts["denoiser"]
        parts["denoiser"] = trained
    parts["gradients"] = trained
    if config.optimizer == "adamw":
        parts["optimiser"] = 2 * trained
    if config.ema_decay:
        parts["averages"] = trained
    return parts


def forward_bytes(config: RunConfig, denoiser: Denoiser, tokens: int, text_tokens: int) -> float:
    """Peak of a forward without gradient over `tokens` video and `text_tokens` text tokens, all videos together."""
    table = COUNTED[config.dtype, config.adapter]
    size, d = precision_bytes(config.dtype), denoiser.width
    video = max(w * d + f * denoiser.ffn for w, f in table.forward) * tokens + d * text_tokens
    text = 3 * d * tokens + table.text_forward * d * text_tokens
    return FORWARD_FIT * size * max(video, text) + _cast_weights(config, denoiser)


def _cast_weights(config: RunConfig, denoiser: Denoiser) -> float:
    """Autocast keeps a bfloat16 copy of trained float32 weights until the forward (or its backward) is over."""
    return 2.0 * trained_parameters(config, denoiser) if config.dtype == "bfloat16" else 0.0


def backward_bytes(
    config: RunConfig, denoiser: Denoiser, tokens: int, text_tokens: int, layers_left: int | None = None
) -> float:
    """Peak of a forward with backward: what the layers keep, and the backward of one of them.

    `layers_left` counts the layers whose backward is still to come; none means all, where most is kept.
    """
    table = COUNTED[config.dtype, config.adapter]
    size, d = precision_bytes(config.dtype), denoiser.width
    layers = denoiser.layers if layers_left is None else layers_left
    extra_w, extra_f, ranks, text_ranks = _adapter_kept(config, denoiser)
    kept = (table.kept[0] + extra_w) * d + (table.kept[1] + extra_f) * denoiser.ffn
    layer = (
        kept * tokens
        + table.text_kept * d * text_tokens
        + (ranks * tokens + text_ranks * text_tokens) / denoiser.layers
    )
    outside = table.outside * d * tokens + table.text_outside * d * text_tokens
    text_backward = table.text_backward * d * text_tokens
    cast = _cast_weights(config, denoiser)
    if not config.gradient_checkpointing:
        one = max(max(w * d + f * denoiser.ffn for w, f in table.backward) * tokens, text_backward)
        return BACKWARD_FIT * size * (layers * layer + outside + one) + cast
    recompute = max(w * d + (f + extra_f) * denoiser.ffn for w, f in table.recompute) + extra_w * d
    video = recompute * tokens + table.text_kept * d * text_tokens + layer - kept * tokens
    one = max(video, layer + text_backward)
    return BACKWARD_FIT * size * (layers * d * tokens + outside + one) + cast


def _adapter_kept(config: RunConfig, denoiser: Denoiser) -> tuple[float, float, float, float]:
    """More that LoRA layers keep: inputs (widths, ffns) beside the attention's, and ranks per video and text token."""
    if config.adapter != "lora":
        return 0.0, 0.0, 0.0, 0.0
    targeted = denoiser.targeted(config.lora_targets)
    over = [layer.over for layer in targeted]
    ends = {layer.name.split(".", 2)[-1] for layer in targeted}
    width = 1.0 if "ffn.net.0.proj" in ends else 0.0
    ffn = 1.0 if "ffn.net.2" in ends else 0.0
    rank = float(config.lora_rank)
    return width, ffn, rank * over.count("video"), rank * over.count("text")


def decode_bytes(autoencoder: Autoencoder, work: Workload, videos: int) -> float:
    """Peak of decoding `videos` at once: the convolutions' caches, the last stage's maps, and the frames so far."""
    latent_frames, latent_pixels = work.latent_shape[1], work.latent_shape[2] * work.latent_shape[3]
    held = min(2, latent_frames)  # a causal convolution remembers two frames
    caches = sum(held * layer.inputs * layer.scale**2 for layer in autoencoder.decoder() if layer.cached)
    alive = DECODER_ALIVE[min(latent_frames, 3) - 1] * autoencoder.decoder_base * autoencoder.multipliers[0]
    maps = caches * latent_pixels + alive * work.pixels
    return 4.0 * videos * (DECODE_FIT * maps + autoencoder.out_channels * work.frames * work.pixels)


def encode_bytes(encoder: TextEncoder, texts: int, tokens: int, size: int) -> float:
    """Peak of encoding texts padded to `tokens`."""
    inner = encoder.heads * encoder.head_dim
    attention = 4 * inner + 2 * encoder.heads * tokens
    return float(size * texts * tokens * (4 * encoder.width + max(attention, 4 * encoder.ffn)))


@dataclass(frozen=True)
class Footprint:
    """Bytes per phase and part: on the device, and for a GPU also beside it in main memory."""

    phases: Mapping[str, Parts]
    host: Mapping[str, Parts]

    def peak(self, phase: str) -> float:
        """Device bytes of one phase."""
        return sum(self.phases[phase].values())

    def peaks(self) -> dict[str, float]:
        """Device bytes by phase."""
        return {phase: self.peak(phase) for phase in self.phases}

    def highest(self) -> float:
        """Device bytes at the run's peak."""
        return max(self.peaks().values())


def footprint(
    config: RunConfig, pipeline: Pipeline, work: Workload, texts: Sequence[str], reward_bytes: float, kind: Kind
) -> Footprint:
    """Memory of one process by phase; `texts` are the prompts it encodes, `reward_bytes` what one scoring takes."""
    stays = resident(config, pipeline)
    networks, encoding = _setup(config, pipeline), _encoding(config, pipeline, texts)
    aside = config.text_encoder_device == "cpu"
    device: dict[str, dict[str, float]] = {
        "setup": networks if aside else networks | encoding,
        "rollout": {**stays, **_kept(work, config), **_rollout(config, pipeline.denoiser, work)},
        "decode": {**stays, **_kept(work, config), "decoding": decode_bytes(*_decoding(pipeline, work))},
        "replay": {**stays, **_kept(work, config), **_replay(config, pipeline.denoiser, work)},
        "step": {**stays, "optimiser step": _step(config, pipeline.denoiser, kind)},
        "evaluate": {**stays, **_evaluate(config, pipeline, work)},
        "save": dict(stays),
    }
    host = _host(config, pipeline, work, texts, reward_bytes)
    host["save"] = {"prompt embeddings": host["step"]["prompt embeddings"], "checkpoint": _checkpoint(stays, kind)}
    if aside:
        host["setup"] |= encoding
    if kind == "cpu":
        # Made channels-last, the autoencoder's weights are copies; what they were read from stays mapped beside them.
        runtime = {"runtime": CPU_RUNTIME, "autoencoder's file": 4.0 * pipeline.autoencoder.parameters()}
        if config.dtype == "bfloat16":
            runtime["bfloat16 kernels"] = BFLOAT16_RUNTIME
        device["evaluate"]["solver"] = SOLVER_RUNTIME
        return Footprint({phase: {**parts, **host[phase], **runtime} for phase, parts in device.items()}, {})
    context = {"CUDA context": GPU_CONTEXT}
    rounded = {phase: {k: v * GPU_ROUNDING for k, v in parts.items()} for phase, parts in device.items()}
    return Footprint({phase: {**parts, **context} for phase, parts in rounded.items()}, host)


def _setup(config: RunConfig, pipeline: Pipeline) -> dict[str, float]:
    return {
        "denoiser": denoiser_bytes(config, pipeline.denoiser),
        "autoencoder": 4.0 * pipeline.autoencoder.parameters(),
    }


def _encoding(config: RunConfig, pipeline: Pipeline, texts: Sequence[str]) -> dict[str, float]:
    size = precision_bytes(config.dtype)
    batch = min(ENCODE_BATCH, len(texts))
    return {
        "text encoder": float(size * pipeline.text_encoder.parameters()),
        "encoding": encode_bytes(pipeline.text_encoder, batch, config.max_sequence_length, size),
    }


def _kept(work: Workload, config: RunConfig) -> dict[str, float]:
    """Latents of the update's rollouts: final ones, branch states, next states, and the multistep solver's memory."""
    per_group = 2 * work.group_size + (1 if work.shared else work.group_size)
    per_group += work.group_size if config.solver == "adams2" else 0
    return {"latents kept": 4.0 * work.groups * per_group * work.latent_elements}


def _text_bytes(config: RunConfig, denoiser: Denoiser, videos: int, pair: int) -> float:
    """Embeddings as picked, moved, and joined with the negative ones."""
    return float(precision_bytes(config.dtype) * videos * (1 + pair) * config.max_sequence_length * denoiser.text_dim)


def _rollout(config: RunConfig, denoiser: Denoiser, work: Workload) -> dict[str, float]:
    videos = work.forward_batch * work.pair
    latents = ROLLOUT_LATENTS * work.states_at_once + VELOCITY_LATENTS * videos
    return {
        "text": _text_bytes(config, denoiser, work.forward_batch, work.pair),
        "latents in flight": 4.0 * latents * work.latent_elements,
        "forward": forward_bytes(config, denoiser, videos * work.tokens, videos * work.text_tokens),
    }


def _decoding(pipeline: Pipeline, work: Workload) -> tuple[Autoencoder, Workload, int]:
    return pipeline.autoencoder, work, min(work.decode_batch, work.group_size)


def _replay(config: RunConfig, denoiser: Denoiser, work: Workload) -> dict[str, float]:
    """Of several micro-batches the later ones find all gradients there; a single one has either activations or them."""
    videos = work.replay_states * work.pair
    tokens, text_tokens = videos * work.tokens, videos * work.text_tokens
    latents = VELOCITY_LATENTS * videos + LOSS_LATENTS * work.replay_members
    gradients = 4.0 * trained_parameters(config, denoiser)
    activations = backward_bytes(config, denoiser, tokens, text_tokens)
    if work.micro_batches == 1:
        last = backward_bytes(config, denoiser, tokens, text_tokens, layers_left=1)
        if gradients + last > activations:
            activations = last
        else:
            gradients = 0.0
    return {
        "gradients": gradients,
        "text": _text_bytes(config, denoiser, work.replay_states, work.pair),
        "latents in flight": 4.0 * latents * work.latent_elements,
        "forward and backward": activations,
    }


def _step(config: RunConfig, denoiser: Denoiser, kind: Kind) -> float:
    """Scratch memory of AdamW: on a GPU for all parameters at once, on a CPU for the largest one."""
    if config.optimizer == "sgd":
        return 0.0
    if kind == "gpu":
        return 4.0 * trained_parameters(config, denoiser)
    largest = max(layer.parameters for layer in denoiser.linears())
    return 8.0 * min(largest, trained_parameters(config, denoiser))


def _checkpoint(stays: Parts, kind: Kind) -> float:
    """Copies made to write a checkpoint: of the optimiser's state, and where they are on a GPU of the weights."""
    return stays.get("optimiser", 0.0) + (stays["gradients"] if kind == "gpu" else 0.0)


def _evaluate(config: RunConfig, pipeline: Pipeline, work: Workload) -> dict[str, float]:
    """Deployment sampling or decoding, whichever is larger; averaged weights swap in beside a copy of the others."""
    videos = work.evaluation_batch * work.evaluation_pair
    denoiser = pipeline.denoiser
    forward = forward_bytes(config, denoiser, videos * work.tokens, videos * work.text_tokens)
    text = _text_bytes(config, denoiser, work.evaluation_batch, work.evaluation_pair)
    decoding = decode_bytes(pipeline.autoencoder, work, min(work.decode_batch, work.evaluation_batch))
    latents = (SOLVER_LATENTS * work.evaluation_batch + VELOCITY_LATENTS * videos) * work.latent_elements
    parts = {"latents in flight": 4.0 * latents, "sampling or decoding": max(forward + text, decoding)}
    if config.ema_decay:
        parts["weights put aside"] = 4.0 * trained_parameters(config, denoiser)
    return parts


def _host(
    config: RunConfig, pipeline: Pipeline, work: Workload, texts: Sequence[str], reward_bytes: float
) -> dict[str, dict[str, float]]:
    """What rests in main memory by phase: prompt embeddings, frames on their way to the rewards, the rewards."""
    tokens = sum(pipeline.text_encoder.tokens(text, config.max_sequence_length) for text in texts)
    embeddings = float(precision_bytes(config.dtype) * tokens * pipeline.denoiser.text_dim)
    video = 4.0 * pipeline.autoencoder.out_channels * work.frames * work.pixels
    always = {"prompt embeddings": embeddings}
    # While a group's last piece is decoded, its others wait to be joined and the group before it is scored; so is one
    # while further groups roll out, where not all do so together.
    in_turns = work.states_at_once < work.groups * work.group_size
    scored = {"frames": work.group_size * video, "rewards": reward_bytes}
    waiting = max(0, work.group_size - work.decode_batch) + (work.group_size if work.groups > 1 else 0)
    judged = max(0, work.evaluation_batch - work.decode_batch)
    return {
        "setup": always,
        "rollout": always | (scored if in_turns else {}),
        "decode": always | {"frames": waiting * video, "rewards": reward_bytes},
        "replay": always,
        "step": always,
        "evaluate": always | {"frames": judged * video, "rewards": reward_bytes},
    }
