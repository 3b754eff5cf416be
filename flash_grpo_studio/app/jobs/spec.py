"""What a job is asked to do: one pydantic model per kind, checked before anything is stored. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

Kind = Literal[
    "alignment",
    "evaluation",
    "preview",
    "scoring",
    "normalisation",
    "composition",
    "contact_sheet",
    "export",
    "push",
    "download",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="Identifier of 16 hexadecimal digits.")]


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("must hold more than white space")
    return text


def _no_way_up(value: str | None) -> str | None:
    if value and ".." in value:
        raise ValueError("must not contain '..'")
    return value


REPO = r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$"
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


Label = Annotated[str, Field(max_length=100)]


class CompositionAsk(Ask):
    """Make two videos one: side by side, or behind a boundary that moves, with labels and the prompt."""

    kind: Literal["composition"]
    left: Identifier = Field(description="The video on the left.")
    right: Identifier = Field(description="The video on the right.")
    labels: Annotated[list[Label], Field(min_length=2, max_length=2)] = Field(["Before", "After"])
    caption: str | None = Field(None, max_length=4000, description="The left video's prompt where missing.")
    layout: Literal["side_by_side", "wipe"] = "side_by_side"
    format: Literal["mp4", "gif", "webp"] = "mp4"
    fps: float | None = Field(None, ge=1, le=120, description="Frames per second; the faster video's where missing.")
    width: int | None = Field(None, ge=64, le=4096, description="In pixels; what the videos need where missing.")


class ContactSheetAsk(Ask):
    """Put pairs of videos of two sides on one picture, some moments of each."""

    kind: Literal["contact_sheet"]
    before: str = Field(max_length=100, description="A side, as `GET /sides` names it.")
    after: str = Field(max_length=100, description="The other side.")
    keys: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=64)] = Field(
        description="Of the pairs, as `GET /comparison` names them."
    )
    labels: Annotated[list[Label], Field(min_length=2, max_length=2)] | None = Field(
        None, description="What the sides are called where missing."
    )


class ExportAsk(Ask):
    """Write a checkpoint in a format other programs load."""

    kind: Literal["export"]
    job_id: Identifier = Field(description="The alignment.")
    format: Literal["adapter", "peft", "merged", "native"] = "adapter"
    checkpoint: str = Field("best", pattern=r"^(best|latest|[0-9]{1,9})$")


class PushAsk(Ask):
    """Send an export to a hub, with the user's own hub token."""

    kind: Literal["push"]
    job_id: Identifier = Field(description="The export.")
    repo: str = Field(pattern=REPO, description="owner/name on the hub.")
    private: bool = Field(True, description="Of a repository that is made for it; one that is there stays as it is.")

    _checked = field_validator("repo")(_no_way_up)


class DownloadAsk(Ask):
    """Download a base model or a reward's weights from the hub, pinned to a commit, safetensors only."""

    kind: Literal["download"]
    repo: str = Field(pattern=REPO, description="owner/name.")
    revision: str | None = Field(None, pattern=r"^[\w./-]{1,100}$")
    what: Literal["model", "reward"] = "model"

    _checked = field_validator("repo", "revision")(_no_way_up)


AnyAsk = (
    AlignmentAsk
    | EvaluationAsk
    | PreviewAsk
    | ScoringAsk
    | NormalisationAsk
    | CompositionAsk
    | ContactSheetAsk
    | ExportAsk
    | PushAsk
    | DownloadAsk
)
ASKS: dict[str, type[Ask]] = {
    "alignment": AlignmentAsk,
    "evaluation": EvaluationAsk,
    "preview": PreviewAsk,
    "scoring": ScoringAsk,
    "normalisation": NormalisationAsk,
    "composition": CompositionAsk,
    "contact_sheet": ContactSheetAsk,
    "export": ExportAsk,
    "push": PushAsk,
    "download": DownloadAsk,
}
