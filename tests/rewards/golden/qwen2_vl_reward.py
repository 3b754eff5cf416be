"""Records what upstream's own reward models answer on weights and inputs drawn from seeds.

Run with transformers 4.45.2 (upstream's pin) on the path, and upstream's source files, for instance:
    python tests/rewards/golden/qwen2_vl_reward.py hpsv3/model/qwen2vl_trainer.py VideoAlign/trainer.py
Only the class of the model is taken from each file; the trainers around it need more than a forward does.
"""

from __future__ import annotations

import ast
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_theta": 1000000.0,
}
VISION: dict[str, Any] = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 2,
    "mlp_ratio": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
IMAGE, VIDEO, PAD = 60, 61, 0
HPSV3 = {"output_dim": 2, "special_token_ids": [50], "rm_head_type": "ranknet"}
VIDEOALIGN = {"output_dim": 1, "special_token_ids": [50, 51, 52]}


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A weight by its name in upstream's file."""
    drawn = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return (drawn * 0.15 + (1.0 if "norm" in name and name.endswith("weight") else 0.0)).astype(np.float32)


def inputs(seed: int, specials: list[int], pad_token: int) -> dict[str, np.ndarray[Any, Any]]:
    """Two sequences of unequal length, padded on the right, each with one picture (or clip) of 2 x 2 merged patches."""
    draw = np.random.RandomState(seed)
    rows, masks = [], []
    for length in (17, 11):
        words = [*draw.randint(1, 40, length - 5 - len(specials)), *[pad_token] * 4, 41, *specials]
        rows.append(words + [PAD] * (17 - length))
        masks.append([1] * length + [0] * (17 - length))
    pixels = draw.standard_normal((32, 3 * 2 * 14 * 14)).astype(np.float32)
    return {
        "input_ids": np.array(rows),
        "attention_mask": np.array(masks),
        "pixels": pixels,
        "grid": np.array([[1, 4, 4], [1, 4, 4]]),
    }


def upstream(source: Path, **options: Any) -> Any:
    """Upstream's model, of its own class, with weights by name."""
    found = [n for n in ast.parse(source.read_text()).body if getattr(n, "name", "") == "Qwen2VLRewardModelBT"]
    scope: dict[str, Any] = {"torch": torch, "nn": nn, **vars(transformers), **vars(__import__("typing"))}
    scope["Qwen2VLForConditionalGeneration"] = transformers.Qwen2VLForConditionalGeneration
    exec(compile(ast.Module(found, []), str(source), "exec"), scope)
    config = transformers.Qwen2VLConfig(
        **TEXT,
        vision_config=VISION,
        rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        attn_implementation="sdpa",
        use_cache=False,
        pad_token_id=PAD,
    )
    model = scope["Qwen2VLRewardModelBT"](config, reward_token="special", **options).float().eval()
    state = {name: torch.from_numpy(weight(name, tuple(old.shape))) for name, old in model.state_dict().items()}
    model.load_state_dict(state)
    return model


def main(hpsv3: Path, videoalign: Path) -> None:
    """Write the answers beside this script."""
    answers: dict[str, Any] = {"transformers": transformers.__version__}
    for name, source, options, kind in (
        ("hpsv3", hpsv3, HPSV3, "image"),
        ("videoalign", videoalign, VIDEOALIGN, "video"),
    ):
        model = upstream(source, **options)
        given = inputs(7, options["special_token_ids"], IMAGE if kind == "image" else VIDEO)  # type: ignore[arg-type]
        tensors = {key: torch.from_numpy(value) for key, value in given.items()}
        pixels = "pixel_values" if kind == "image" else "pixel_values_videos"
        with torch.no_grad():
            answer = model(
                input_ids=tensors["input_ids"],
                attention_mask=tensors["attention_mask"],
                return_dict=True,
                **{pixels: tensors["pixels"], f"{kind}_grid_thw": tensors["grid"]},
            )
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        answers[name] = {"logits": answer["logits"].tolist(), "shapes": shapes}
    Path(__file__).with_suffix(".json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
