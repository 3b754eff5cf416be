"""What a job is asked to do: one pydantic model per kind, checked before anything is stored. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

KINDS = ("alignment", "evaluation", "preview", "scoring", "normalisation", "export", "download")
Kind = Literal["alignment", "evaluation", "preview", "scoring", "normalisation", "export", "download"]
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="Identifier of 16 hexadecimal digits.")]


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("must hold more than white space")
    return text


Text = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(_says_something)]

MAX_PROMPTS = 100_000


class Ask(BaseModel):
    """What all kinds share."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str | None = Field(None, max_length=200, description="Shown in lists; made up where missing.")
    priority: int = Field(0, ge=-1000, le=1000, description="Jobs of higher priority start first.")
    max_retries: int = Field(
        3, ge=0, le=100, description="Starts after a death without progress before the job counts as failed."
    )
    shared: bool = Field(False, description="Whether other users may look at it.")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=200, description="Asking twice with one key makes one job."
    )


class AlignmentAsk(Ask):
    """Align a model: a preset with changes."""

    kind: Literal["alignment"] = "alignment"
    preset: str = Field(max_length=100, description="Preset to start from; see GET /presets.")
    overrides: dict[str, Any] = Field(default_factory=dict, description="Configuration keys and their values.")
    prompts: Identifier | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)] | None = Field(
        None, description="Training prompts: texts, or the id of a prompt set."
    )
    heldout: Annotated[list[Text], Field(max_length=MAX_PROMPTS)] | None = Field(
        None,
        description="Texts never trained on, beside `prompts` as texts; from 8 on they replace the preset's validation "
        "and held-out prompts, half each.",
    )
    rewards: dict[Annotated[str, Field(max_length=300)], float] | None = Field(
        None, description="Reward name to weight; weight 0 records it without optimising it."
    )
    devices: int = Field(1, ge=1, le=1024, description="Devices on each machine.")
    machines: int = Field(1, ge=1, le=1024, description="Machines the job is spread over.")
    budget: float | None = Field(None, gt=0, description="Device-minutes after which the job is paused.")


class EvaluationAsk(Ask):
    """Repeat the held-out comparison of an alignment's best checkpoint with its base model."""

    kind: Literal["evaluation"]
    job_id: Identifier = Field(description="The alignment.")


class PreviewAsk(Ask):
    """Render prompts before and after alignment, on the same noise."""

    kind: Literal["preview"]
    job_id: Identifier = Field(description="The alignment.")
    prompts: Annotated[list[Text], Field(min_length=1, max_length=64)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=64)] = Field([0])
    checkpoint: str = Field("best", pattern=r"^(best|latest|[0-9]{1,9})$", description="best, latest or an update.")
    strength: float = Field(1.0, ge=0, le=4, description="Scale of the adapter; 0 is the base model.")
    side: Literal["before", "after", "both"] = "both"


class ScoringAsk(Ask):
    """Score videos with rewards."""

    kind: Literal["scoring"]
    video_ids: Annotated[list[Identifier], Field(min_length=1, max_length=1000)]
    rewards: Annotated[list[Annotated[str, Field(max_length=300)]], Field(min_length=1, max_length=64)]
    reward_options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    prompt: Text | None = Field(None, description="Prompt of all videos; each video's own where missing.")


class NormalisationAsk(Ask):
    """Turn an uploaded video into one that plays everywhere: constant rate, H.264, short GOP, fast start."""

    kind: Literal["normalisation"]
    file_id: Identifier = Field(description="The upload.")
    prompt: Text | None = None
    fps: float | None = Field(None, gt=0, le=240)
    max_side: int = Field(1920, ge=16, le=8192)


class ExportAsk(Ask):
    """Write a checkpoint in a format other programs load."""

    kind: Literal["export"]
    job_id: Identifier = Field(description="The alignment.")
    format: Literal["adapter", "peft", "merged", "native"] = "adapter"
    checkpoint: str = Field("best", pattern=r"^(best|latest|[0-9]{1,9})$")


class DownloadAsk(Ask):
    """Download a base model or a reward's weights from the hub, pinned to a commit, safetensors only."""

    kind: Literal["download"]
    repo: str = Field(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$", description="owner/name.")
    revision: str | None = Field(None, pattern=r"^[\w./-]{1,100}$")
    what: Literal["model", "reward"] = "model"

    @field_validator("repo", "revision")
    @classmethod
    def _no_way_up(cls, value: str | None) -> str | None:
        if value and ".." in value:
            raise ValueError("must not contain '..'")
        return value


AnyAsk = AlignmentAsk | EvaluationAsk | PreviewAsk | ScoringAsk | NormalisationAsk | ExportAsk | DownloadAsk
ASKS: dict[str, type[Ask]] = {
    "alignment": AlignmentAsk,
    "evaluation": EvaluationAsk,
    "preview": PreviewAsk,
    "scoring": ScoringAsk,
    "normalisation": NormalisationAsk,
    "export": ExportAsk,
    "download": DownloadAsk,
}
