"""Workflows for ComfyUI that show an adapter before and after, as its page opens them. Imports no torch.

The examples of the node pack are made here too (`make comfyui-pack`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.prompts import load_prompts

PROMPT = "a purple circle moving down on a gray background"
POCKET_REWARDS = "subject_size, prompt_following, colorfulness, sharpness, flicker"
REWARDS = "colorfulness, sharpness, flicker"
_HUB = "https://huggingface.co/Comfy-Org/Wan_2.1_ComfyUI_repackaged/resolve/main/split_files"
_WAN_MODELS = {"Wan-AI/Wan2.1-T2V-1.3B-Diffusers": "wan2.1_t2v_1.3B_fp16.safetensors"}
_WAN_MODELS["Wan-AI/Wan2.1-T2V-14B-Diffusers"] = "wan2.1_t2v_14B_fp16.safetensors"
_COLUMN, _GAP = 420, 40

Port = tuple[int, int, str]
"""A node's id, the place of one of its outputs, and that output's type."""


@dataclass(frozen=True)
class Deployment:
    """What an adapter is used with: base model by public name, adapter file, prompt, and how it was judged."""

    base: str
    adapter: str
    prompt: str = PROMPT
    negative: str = ""
    width: int = 32
    height: int = 32
    frames: int = 9
    fps: float = 8.0
    steps: int = 20
    guidance: float = 3.0
    shift: float = 3.0
    seed: int = 2

    @property
    def pocket(self) -> bool:
        """Whether it is for the pocket model, which has a text encoder of its own."""
        return self.base == "pocket"


_TYPES: dict[str, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], tuple[int, int]]] = {
    # class: linked inputs, outputs, size
    "UNETLoader": ((), (("MODEL", "MODEL"),), (360, 90)),
    "VAELoader": ((), (("VAE", "VAE"),), (360, 60)),
    "CLIPLoader": ((), (("CLIP", "CLIP"),), (360, 110)),
    "ModelSamplingSD3": ((("model", "MODEL"),), (("MODEL", "MODEL"),), (360, 60)),
    "CLIPTextEncode": ((("clip", "CLIP"),), (("CONDITIONING", "CONDITIONING"),), (360, 120)),
    "EmptyHunyuanLatentVideo": ((), (("LATENT", "LATENT"),), (360, 130)),
    "VAEDecode": ((("samples", "LATENT"), ("vae", "VAE")), (("IMAGE", "IMAGE"),), (360, 50)),
    "FlashGrpoPocketTextEncode": ((), (("CONDITIONING", "CONDITIONING"),), (360, 130)),
    "FlashGrpoPickCheckpoints": (
        (),
        (("checkpoints", "FLASH_GRPO_CHECKPOINT"), ("labels", "STRING")),
        (360, 110),
    ),
    "FlashGrpoLoadCheckpoint": (
        (("model", "MODEL"), ("picked", "FLASH_GRPO_CHECKPOINT")),
        (("before", "MODEL"), ("after", "MODEL"), ("info", "STRING"), ("facts", "FLASH_GRPO_FACTS")),
        (380, 500),
    ),
    "FlashGrpoSamplePair": (
        (
            ("before", "MODEL"),
            ("after", "MODEL"),
            ("positive", "CONDITIONING"),
            ("negative", "CONDITIONING"),
            ("latent_image", "LATENT"),
        ),
        (("before", "LATENT"), ("after", "LATENT"), ("settings", "FLASH_GRPO_SETTINGS")),
        (360, 330),
    ),
    "FlashGrpoScoreVideo": (
        (("video", "VIDEO,IMAGE"), ("facts", "FLASH_GRPO_FACTS")),
        (("scores", "FLASH_GRPO_SCORES"), ("text", "STRING")),
        (360, 400),
    ),
    "FlashGrpoCompareVideos": (
        (
            ("before", "VIDEO,IMAGE"),
            ("after", "VIDEO,IMAGE"),
            ("before_scores", "FLASH_GRPO_SCORES"),
            ("after_scores", "FLASH_GRPO_SCORES"),
            ("settings", "FLASH_GRPO_SETTINGS"),
            ("facts", "FLASH_GRPO_FACTS"),
        ),
        (("video", "VIDEO"), ("text", "STRING")),
        (720, 860),
    ),
}


@dataclass
class _Graph:
    """A workflow while it grows; nodes go below one another, column by column."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    links: list[list[Any]] = field(default_factory=list)
    bottoms: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        column: int,
        kind: str,
        widgets: Sequence[Any],
        sources: Mapping[str, Port] | None = None,
        title: str = "",
        models: Sequence[Mapping[str, str]] = (),
    ) -> list[Port]:
        """Add a node whose linked inputs come from `sources`; returns its outputs."""
        takes, gives, size = _TYPES[kind]
        number, top = len(self.nodes) + 1, self.bottoms.get(column, 0)
        self.bottoms[column] = top + size[1] + _GAP + 30
        inputs = [self._input(number, slot, name, type_, sources or {}) for slot, (name, type_) in enumerate(takes)]
        node = {
            "id": number,
            "type": kind,
            "pos": [column * _COLUMN, top],
            "size": list(size),
            "flags": {},
            "order": number - 1,
            "mode": 0,
            "inputs": inputs,
            "outputs": [{"name": name, "type": type_, "links": []} for name, type_ in gives],
            "properties": {"Node name for S&R": kind, **({"models": list(models)} if models else {})},
            "widgets_values": list(widgets),
        }
        self.nodes.append({**node, "title": title} if title else node)
        return [(number, slot, type_) for slot, (_, type_) in enumerate(gives)]

    def _input(self, number: int, slot: int, name: str, type_: str, sources: Mapping[str, Port]) -> dict[str, Any]:
        if name not in sources:
            return {"name": name, "type": type_, "link": None}
        node, output, given = sources[name]
        link = len(self.links) + 1
        self.links.append([link, node, output, number, slot, given])
        self.nodes[node - 1]["outputs"][output]["links"].append(link)
        return {"name": name, "type": type_, "link": link}

    def document(self) -> dict[str, Any]:
        """The workflow as ComfyUI's page reads it."""
        return {
            "last_node_id": len(self.nodes),
            "last_link_id": len(self.links),
            "nodes": self.nodes,
            "links": self.links,
            "groups": [],
            "config": {},
            "extra": {},
            "version": 0.4,
        }


def before_after(deployment: Deployment, sweep: tuple[str, str] | None = None) -> dict[str, Any]:
    """A workflow that samples a prompt before and after alignment with one seed, scores and compares both.

    `sweep` names a run and its updates ("all", "20, 80"); then each of these checkpoints is compared instead.
    """
    graph = _Graph()
    model, vae, positive, negative = _models(graph, deployment)
    (latent,) = graph.add(1, "EmptyHunyuanLatentVideo", [deployment.width, deployment.height, deployment.frames, 1])
    picked = {"picked": graph.add(2, "FlashGrpoPickCheckpoints", sweep)[0]} if sweep else {}
    settings = [deployment.adapter, 1.0, "all", 0.5, "single model", True]
    before, after, _, facts = graph.add(2, "FlashGrpoLoadCheckpoint", settings, {"model": model, **picked})
    first, second, sampled = graph.add(
        3,
        "FlashGrpoSamplePair",
        [deployment.seed, "fixed", deployment.steps, deployment.guidance, "uni_pc", "simple", 1.0],
        {"before": before, "after": after, "positive": positive, "negative": negative, "latent_image": latent},
    )
    shown, scores = {}, {}
    for side, latents in (("before", first), ("after", second)):
        (shown[side],) = graph.add(3, "VAEDecode", [], {"samples": latents, "vae": vae}, side)
        rewards = POCKET_REWARDS if deployment.pocket else REWARDS
        judged = [deployment.fps, deployment.prompt, rewards, ""]
        scores[f"{side}_scores"] = graph.add(
            4, "FlashGrpoScoreVideo", judged, {"video": shown[side], "facts": facts}, f"Score {side}"
        )[0]
    prefix = f"flash_grpo/{deployment.base.rpartition('/')[2]}"
    widgets = [deployment.fps, prefix]
    graph.add(5, "FlashGrpoCompareVideos", widgets, {"settings": sampled, "facts": facts, **shown, **scores})
    return graph.document()


def for_run(config: RunConfig, base: str, adapter: str, shift: float) -> dict[str, Any]:
    """A run's adapter before and after, on its first held-out prompt and with the settings it was judged at."""
    try:
        prompt = load_prompts(config.heldout_prompts, 1)[0].text
    except InputError:  # the run's prompts are elsewhere by now
        prompt = PROMPT
    return before_after(
        Deployment(
            base=base,
            adapter=adapter,
            prompt=prompt,
            negative=config.negative_prompt,
            width=config.width,
            height=config.height,
            frames=config.frames,
            fps=config.fps,
            steps=config.evaluation_steps,
            guidance=config.deployment_guidance(),
            shift=shift,
        )
    )


def _models(graph: _Graph, deployment: Deployment) -> tuple[Port, Port, Port, Port]:
    """The loaders: denoiser with its shift, autoencoder, and both prompts encoded."""
    file, vae_file = base_files(deployment.base)
    known = not deployment.pocket and deployment.base in _WAN_MODELS
    (plain,) = graph.add(0, "UNETLoader", [file, "default"], models=_offered(known, "diffusion_models", file))
    (model,) = graph.add(1, "ModelSamplingSD3", [deployment.shift], {"model": plain})
    texts = (("Prompt", deployment.prompt), ("Negative prompt", deployment.negative))
    if deployment.pocket:
        encoder = "flash-grpo-pocket-text.safetensors"
        found = [graph.add(1, "FlashGrpoPocketTextEncode", [encoder, text], title=title)[0] for title, text in texts]
    else:
        encoder = "umt5_xxl_fp8_e4m3fn_scaled.safetensors"
        offered = _offered(True, "text_encoders", encoder)
        (clip,) = graph.add(0, "CLIPLoader", [encoder, "wan", "default"], models=offered)
        found = [graph.add(1, "CLIPTextEncode", [text], {"clip": clip}, title)[0] for title, text in texts]
    (vae,) = graph.add(0, "VAELoader", [vae_file], models=_offered(not deployment.pocket, "vae", vae_file))
    return model, vae, found[0], found[1]


def base_files(base: str) -> tuple[str, str]:
    """Usual names of a base model's denoiser and autoencoder in a ComfyUI."""
    if base == "pocket":
        return "flash-grpo-pocket.safetensors", "flash-grpo-pocket-vae.safetensors"
    return _WAN_MODELS.get(base, f"{base.rpartition('/')[2]}.safetensors"), "wan_2.1_vae.safetensors"


def _offered(known: bool, folder: str, file: str) -> list[dict[str, str]]:
    """Where ComfyUI offers to download a file that is missing."""
    return [{"name": file, "url": f"{_HUB}/{folder}/{file}", "directory": folder}] if known else []


def examples() -> dict[str, dict[str, Any]]:
    """The node pack's example workflows by file name."""
    pocket = Deployment("pocket", "pocket-subject-size-000080.safetensors")
    wan = Deployment(
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
        "your-run-000100.safetensors",
        prompt="A red panda walks along a mossy branch in morning fog, close-up, gentle camera move to the left.",
        width=832,
        height=480,
        frames=33,
        fps=16.0,
        steps=30,
        guidance=5.0,
    )
    return {
        "1_pocket_before_after.json": before_after(pocket),
        "2_wan2.1_1.3b_before_after.json": before_after(wan),
        "3_pocket_two_checkpoints.json": before_after(pocket, sweep=("pocket-subject-size", "60, 80")),
    }
