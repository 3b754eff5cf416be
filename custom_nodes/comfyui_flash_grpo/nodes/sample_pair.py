"""Same-seed before/after sampler: two models, one noise, the same settings."""

from __future__ import annotations

from typing import Any

import comfy.model_management
import comfy.sample
import comfy.samplers
import comfy.utils
import latent_preview
import torch
from comfy_api.latest import io

from .types import CATEGORY, Settings


class SamplePair(io.ComfyNode):
    """Sample the same noise with two models, one after the other."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What the node looks like."""
        return io.Schema(
            node_id="FlashGrpoSamplePair",
            display_name="Same-seed before/after sampler",
            category=CATEGORY,
            description="Samples one noise with both models, with the same settings, so that only alignment differs.",
            inputs=[
                io.Model.Input("before"),
                io.Model.Input("after"),
                io.Conditioning.Input("positive"),
                io.Conditioning.Input("negative"),
                io.Latent.Input("latent_image"),
                io.Int.Input("seed", default=0, min=0, max=2**64 - 1, control_after_generate=True),
                io.Int.Input("sampling_steps", default=20, min=1, max=1000),
                io.Float.Input("cfg", default=5.0, min=0.0, max=100.0, step=0.1, round=0.01),
                io.Combo.Input("sampler_name", options=comfy.samplers.KSampler.SAMPLERS, default="euler"),
                io.Combo.Input("scheduler", options=comfy.samplers.KSampler.SCHEDULERS, default="simple"),
                io.Float.Input("denoise", default=1.0, min=0.0, max=1.0, step=0.01),
            ],
            outputs=[
                io.Latent.Output("before_latent", display_name="before"),
                io.Latent.Output("after_latent", display_name="after"),
                Settings.Output("settings"),
            ],
        )

    @classmethod
    def execute(
        cls,
        before: Any,
        after: Any,
        positive: Any,
        negative: Any,
        latent_image: dict[str, Any],
        seed: int,
        sampling_steps: int,
        cfg: float,
        sampler_name: str,
        scheduler: str,
        denoise: float,
    ) -> io.NodeOutput:
        """Sample both sides; the second starts in a memory that the first has left."""
        start = comfy.sample.fix_empty_latent_channels(before, latent_image["samples"])
        noise = comfy.sample.prepare_noise(start, seed, latent_image.get("batch_index"))
        bar = comfy.utils.ProgressBar(2 * sampling_steps)
        found = []
        for side, model in enumerate((before, after)):
            if side:
                comfy.model_management.unload_all_models()
                comfy.model_management.soft_empty_cache()
            samples = comfy.sample.sample(
                model,
                noise,
                sampling_steps,
                cfg,
                sampler_name,
                scheduler,
                positive,
                negative,
                start,
                denoise=denoise,
                noise_mask=latent_image.get("noise_mask"),
                callback=_progress(model, bar, side * sampling_steps),
                disable_pbar=not comfy.utils.PROGRESS_BAR_ENABLED,
                seed=seed,
            )
            found.append({**latent_image, "samples": samples})
        settings = {
            "seed": seed,
            "steps": sampling_steps,
            "cfg": cfg,
            "sampler": sampler_name,
            "scheduler": scheduler,
            "denoise": denoise,
        }
        return io.NodeOutput(*found, settings)


def _progress(model: Any, bar: Any, done: int) -> Any:
    """A callback that shows both sides as one progress with previews; ComfyUI raises in it when interrupted."""
    previewer = latent_preview.get_previewer(model.load_device, model.model.latent_format)

    def show(step: int, denoised: torch.Tensor, noisy: torch.Tensor, total: int) -> None:
        del noisy
        preview = previewer.decode_latent_to_preview_image("JPEG", denoised) if previewer else None
        bar.update_absolute(done + step + 1, 2 * total, preview)

    return show
