"""Runs in ComfyUI's own Python, without its server: loads models and adapters by the pack's nodes, writes what came.

COMFYUI_PYTHON probe.py SPEC.json, in COMFYUI_DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SPEC = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
sys.argv = ["probe", "--cpu", "--base-directory", SPEC["base"]]
sys.path[:0] = [str(Path.cwd()), str(Path(SPEC["base"]) / "custom_nodes")]

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.model_management  # noqa: E402
import comfy.sd  # noqa: E402
import comfy.utils  # noqa: E402
import folder_paths  # noqa: E402
import torch  # noqa: E402
from comfyui_flash_grpo.nodes.load_checkpoint import LoadAlignedCheckpoint  # noqa: E402
from comfyui_flash_grpo.nodes.sample_pair import SamplePair  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402


def main() -> None:
    """Work through the cases; each has its own line of the answer."""
    found = {}
    for case in SPEC["cases"]:
        try:
            found[case["name"]] = globals()[case["do"]](case)
        except ValueError as error:
            found[case["name"]] = {"error": str(error)}
    Path(SPEC["answer"]).write_text(json.dumps(found), encoding="utf-8")


def load(case: dict[str, Any]) -> Any:
    """The base model and what the loader node makes of it."""
    model = comfy.sd.load_diffusion_model(folder_paths.get_full_path("diffusion_models", case["model"]))
    if "shift" in case:
        from comfy_extras.nodes_model_advanced import ModelSamplingSD3

        (model,) = ModelSamplingSD3().patch(model, case["shift"])
    settings = {"strength": 1.0, "steps": "all", "boundary": 0.5, "expert": "single model", "check_base": True}
    return LoadAlignedCheckpoint.execute(model, case["adapter"], **{**settings, **case.get("settings", {})})


def weights(case: dict[str, Any]) -> dict[str, Any]:
    """All weights of the patched model, and the node's text."""
    before, after, info, _ = load(case).args
    comfy.model_management.load_models_gpu([after], force_full_load=True)
    save(after, case["after"])
    # The base comes back as it was, and is checked against its sketch while the other is loaded.
    again = load({**case, "settings": case.get("settings", {})}).args
    comfy.model_management.load_models_gpu([before], force_full_load=True)
    save(before, case["before"])
    return {"info": info, "again": again[2]}


def save(model: Any, file: str) -> None:
    """Write a loaded model's weights."""
    prefix = "diffusion_model."
    state = model.model.state_dict()
    save_file({k.removeprefix(prefix): v.float().contiguous() for k, v in state.items() if k.startswith(prefix)}, file)


def sample(case: dict[str, Any]) -> dict[str, Any]:
    """Latents of both sides."""
    before, after, info, _ = load(case).args
    given = load_file(case["given"])
    pair = [[[given[name][None], {}]] for name in ("positive", "negative")]
    latent = {"samples": torch.zeros(tuple(case["shape"]))}
    settings = [case["seed"], case["sampling_steps"], case["cfg"], "euler", "simple", 1.0]
    first, second, _ = SamplePair.execute(before, after, *pair, latent, *settings).args
    found = {"before": first["samples"], "after": second["samples"]}
    vae = comfy.sd.VAE(sd=comfy.utils.load_torch_file(folder_paths.get_full_path("vae", case["vae"])))
    found["frames"] = vae.decode(second["samples"])
    save_file({name: tensor.float().contiguous().clone() for name, tensor in found.items()}, case["answer"])
    return {"info": info}


with torch.inference_mode():
    main()
