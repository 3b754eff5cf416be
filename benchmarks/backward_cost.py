"""The time of a backward in forwards: the ratio by which `cost` weighs backwards (`WanModel.backward_cost`).

python benchmarks/backward_cost.py [--model pocket] [--states 16] [--repeats 9]
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import torch

from flash_grpo.config import build_config
from flash_grpo.models.base import VideoModel
from flash_grpo.models.registry import load_model


def ratio(model: VideoModel, states: int, repeats: int) -> float:
    """Median backward time over median no-gradient forward time, guidance pair included."""
    config = build_config("pocket")
    shape = model.latent_shape(config.frames, config.height, config.width)
    embeddings = model.encode_prompts(["a red circle moving left on a black background"] * states, "")
    latents, text = torch.randn((states, *shape)), embeddings.pick(range(states))
    timesteps = torch.full((states,), 900.0)
    forwards, backwards = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        with torch.no_grad():
            model.velocity(latents, timesteps, text, embeddings.negative, 3.0)
        forwards.append(time.perf_counter() - start)
        loss = model.velocity(latents, timesteps, text, embeddings.negative, 3.0).square().mean()
        start = time.perf_counter()
        torch.autograd.backward(loss)
        backwards.append(time.perf_counter() - start)
    return median(backwards) / median(forwards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    config = build_config("pocket", {"model": arguments.model})
    result = {}
    for kind in ("lora", "lora, checkpointing", "full", "full, checkpointing"):
        model = load_model(config)
        if kind.startswith("lora"):
            model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, config.lora_init)
        else:
            model.train_all(keep_base=False)
        if kind.endswith("checkpointing"):
            model.enable_gradient_checkpointing()
        result[kind] = {"measured": ratio(model, arguments.states, arguments.repeats), "used": model.backward_cost}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
