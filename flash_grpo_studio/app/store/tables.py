"""The tables of the studio. Times are Unix seconds, paths are relative to the workspace, identifiers are random."""

from __future__ import annotations

import secrets
import time
from typing import Any, Literal

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Role = Literal["viewer", "creator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "creator", "admin")


def new_id() -> str:
    """A random identifier of 16 hexadecimal digits; it tells nothing and cannot be guessed."""
    return secrets.token_hex(8)


def new_revision() -> int:
    """A random number for a row as it is now; so many of them can be summed in 63 bits that a table holds rows."""
    return secrets.randbits(40)


class Table(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {dict[str, Any]: JSON, list[str]: JSON, list[Any]: JSON}  # noqa: RUF012


class Fact(Table):
    """What is true of the studio as a whole; `workspace` holds the token of the one folder it works with."""

    __tablename__ = "facts"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(4000))


class User(Table):
    """A person; without a password hash nobody can log in as this user (the implicit admin of a loopback studio)."""

    __tablename__ = "users"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    password_hash: Mapped[str | None] = mapped_column(String(255))
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created: Mapped[float] = mapped_column(default=time.time)


class Draft(Table):
    """A form that a user has begun; `address` says on which page, version grows with every change."""

    __tablename__ = "drafts"
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    address: Mapped[str] = mapped_column(String(1000), primary_key=True)
    version: Mapped[int]
    form: Mapped[dict[str, Any]]
    changed: Mapped[float] = mapped_column(default=time.time)


class ApiToken(Table):
    """A credential: `kind` is token (for programs) or session (a browser's cookie); only its SHA-256 is kept.

    scopes: read, write, admin; never more than the user's role allows. expires: Unix seconds or None.
    """

    __tablename__ = "api_tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16), default="token")
    name: Mapped[str] = mapped_column(String(100))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[str]] = mapped_column(default=list)
    created: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float | None]
    last_used: Mapped[float | None]


class Job(Table):
    """A piece of work as the studio queues it. Only `app.jobs` changes its state.

    fence: grows with every claim and adoption; whoever writes for an attempt names it, and an outdated one writes
    nothing. intake_offset: bytes of the run's events.jsonl already in the store. not_before: earliest next start of a
    retry. message: why it is in this state, as a sentence. progress: the last progress event, flattened.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    kind: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16), default="queued")
    preset: Mapped[str | None] = mapped_column(String(100))
    spec: Mapped[dict[str, Any]]
    shared: Mapped[bool] = mapped_column(default=False)
    parent_id: Mapped[str | None] = mapped_column(String(32), index=True)
    cloned_from: Mapped[str | None] = mapped_column(String(32))
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    devices: Mapped[int] = mapped_column(default=1)
    machines: Mapped[int] = mapped_column(default=1)
    priority: Mapped[int] = mapped_column(default=0)
    position: Mapped[float]
    budget: Mapped[float | None]
    device_seconds: Mapped[float] = mapped_column(default=0.0)
    max_retries: Mapped[int] = mapped_column(default=3)
    retries: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[float | None]
    announced: Mapped[bool] = mapped_column(default=False)
    folder: Mapped[str] = mapped_column(String(500))
    fence: Mapped[int] = mapped_column(default=0)
    worker_id: Mapped[str | None] = mapped_column(String(32), index=True)
    intake_offset: Mapped[int] = mapped_column(BigInteger, default=0)
    update: Mapped[int] = mapped_column(default=0)
    updates: Mapped[int | None]
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    result: Mapped[dict[str, Any]] = mapped_column(default=dict)
    message: Mapped[str] = mapped_column(String(4000), default="")
    created: Mapped[float] = mapped_column(default=time.time)
    started: Mapped[float | None]
    ended: Mapped[float | None]
    changed: Mapped[float] = mapped_column(default=time.time)

    __table_args__ = (
        UniqueConstraint("owner_id", "idempotency_key", name="uq_jobs_idempotency"),
        Index("ix_jobs_queue", "state", "priority", "position"),
        Index("ix_jobs_owner", "owner_id", "created"),
        Index("ix_jobs_created", "created"),
    )


class Attempt(Table):
    """One start of a job on one worker; `outcome` is None while it goes on, then a state or `stopped`.

    process and process_started name the leader of the process group on `host`; devices are names such as cuda:0.
    ending: the event by which the run itself said how it ended.
    """

    __tablename__ = "attempts"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(32))
    host: Mapped[str] = mapped_column(String(255))
    devices: Mapped[list[str]] = mapped_column(default=list)
    process: Mapped[int | None]
    process_started: Mapped[float | None]
    from_update: Mapped[int | None]
    started: Mapped[float] = mapped_column(default=time.time)
    ended: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(16))
    exit_code: Mapped[int | None]
    ending: Mapped[dict[str, Any] | None]
    message: Mapped[str] = mapped_column(String(4000), default="")


class MetricSeries(Table):
    """The names of a job's metric series, in the order of the values of its `metrics` rows."""

    __tablename__ = "metric_series"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200))


class Metric(Table):
    """What one update measured: little-endian float64 values, one per series, NaN where a series has none.

    One row per update instead of one per value: ten times fewer rows to write and to read for a chart.
    """

    __tablename__ = "metrics"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    update: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    time: Mapped[float]
    values: Mapped[bytes] = mapped_column(LargeBinary)

    __table_args__ = ({"sqlite_with_rowid": False},)


class Event(Table):
    """What happened, for people and streams: a run's events, state changes, and what users did (also without a job).

    seq: the number in the run's log, None for what the studio itself tells; (job, seq) is unique, so taking a log in
    twice changes nothing. user_id: who did it, None for the studio itself.
    """

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    seq: Mapped[int | None]
    attempt: Mapped[int | None]
    time: Mapped[float] = mapped_column(default=time.time)
    type: Mapped[str] = mapped_column(String(32))
    update: Mapped[int | None]
    user_id: Mapped[str | None] = mapped_column(String(32))
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)

    __table_args__ = (
        UniqueConstraint("job_id", "seq", name="uq_events_seq"),
        Index("ix_events_job", "job_id", "id"),
        {"sqlite_autoincrement": True},
    )


class Checkpoint(Table):
    """A checkpoint of an alignment, as its event told; pruned ones are removed when a later event shows it."""

    __tablename__ = "checkpoints"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    update: Mapped[int]
    path: Mapped[str] = mapped_column(String(1000))
    best: Mapped[bool] = mapped_column(default=False)
    created: Mapped[float] = mapped_column(default=time.time)

    __table_args__ = (UniqueConstraint("job_id", "update", name="uq_checkpoints"),)


class Video(Table):
    """A video of a job, of an upload (job_id None) or of a preview; update 0 is before alignment.

    strength: of the adapter in a preview, None is as it was trained. noise: seed of the starting noise, None where it
    was not recorded. revision: random and new with every change, so that a sum tells whether any of many rows changed.
    """

    __tablename__ = "videos"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    update: Mapped[int | None]
    side: Mapped[str | None] = mapped_column(String(16))
    prompt_id: Mapped[str | None] = mapped_column(String(200))
    prompt: Mapped[str | None] = mapped_column(String(4000))
    seed: Mapped[int | None] = mapped_column(BigInteger)
    strength: Mapped[float | None]
    noise: Mapped[int | None] = mapped_column(BigInteger)
    path: Mapped[str] = mapped_column(String(1000))
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    scores: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created: Mapped[float] = mapped_column(default=time.time)
    revision: Mapped[int] = mapped_column(BigInteger, default=new_revision, onupdate=new_revision)

    __table_args__ = (
        UniqueConstraint("job_id", "path", name="uq_videos_path"),
        Index("ix_videos_side", "job_id", "update", "revision"),
    )


class File(Table):
    """Any other file a user may fetch: charts, summaries, logs, exports, uploads; `kind` says which."""

    __tablename__ = "files"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(255))
    path: Mapped[str] = mapped_column(String(1000))
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    created: Mapped[float] = mapped_column(default=time.time)

    __table_args__ = (UniqueConstraint("job_id", "path", name="uq_files_path"),)


class PromptSet(Table):
    """Prompts a user keeps; `prompts` are {id, text} objects, `heldout` those never trained on."""

    __tablename__ = "prompt_sets"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str] = mapped_column(String(200))
    prompts: Mapped[list[Any]] = mapped_column(default=list)
    heldout: Mapped[list[Any]] = mapped_column(default=list)
    shared: Mapped[bool] = mapped_column(default=False)
    created: Mapped[float] = mapped_column(default=time.time)
    changed: Mapped[float] = mapped_column(default=time.time)

    __table_args__ = (UniqueConstraint("owner_id", "name", name="uq_prompt_sets_name"),)


class RewardProfile(Table):
    """Rewards with weights and options under a name."""

    __tablename__ = "reward_profiles"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str] = mapped_column(String(200))
    rewards: Mapped[dict[str, Any]] = mapped_column(default=dict)
    reward_options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    shared: Mapped[bool] = mapped_column(default=False)
    created: Mapped[float] = mapped_column(default=time.time)

    __table_args__ = (UniqueConstraint("owner_id", "name", name="uq_reward_profiles_name"),)


class BaseModelEntry(Table):
    """A base model the studio may train: built in, or downloaded by a job to a folder of the workspace."""

    __tablename__ = "base_models"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    name: Mapped[str] = mapped_column(String(200), unique=True)
    source: Mapped[str] = mapped_column(String(500))
    revision: Mapped[str | None] = mapped_column(String(100))
    licence: Mapped[str | None] = mapped_column(String(200))
    path: Mapped[str] = mapped_column(String(1000))
    created: Mapped[float] = mapped_column(default=time.time)


class Ballot(Table):
    """A blind pair shown to one person, and once `choice` is given, the vote: left, right, tie, bad (both) or skip.

    first_side, second_side: in the order of their texts, so that whichever a person calls before, his vote counts for
    the same two; first_is_before tells what he called so. It outlives its videos: key, prompt and seed name the pair.
    private: whether a video is of somebody's own preview, whose prompt others must not read.
    """

    __tablename__ = "ballots"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    first_side: Mapped[str] = mapped_column(String(80))
    second_side: Mapped[str] = mapped_column(String(80))
    key: Mapped[str] = mapped_column(String(40))
    prompt: Mapped[str] = mapped_column(String(4000))
    seed: Mapped[int] = mapped_column(BigInteger)
    first_video_id: Mapped[str | None] = mapped_column(ForeignKey("videos.id", ondelete="SET NULL"), index=True)
    second_video_id: Mapped[str | None] = mapped_column(ForeignKey("videos.id", ondelete="SET NULL"), index=True)
    private: Mapped[bool] = mapped_column(default=False)
    first_is_before: Mapped[bool]
    first_on_left: Mapped[bool]
    choice: Mapped[str | None] = mapped_column(String(16))
    undone: Mapped[bool] = mapped_column(default=False)
    revealed: Mapped[bool] = mapped_column(default=False)
    created: Mapped[float] = mapped_column(default=time.time)
    chosen: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("user_id", "first_side", "second_side", "key", name="uq_ballots_pair"),
        Index("ix_ballots_sides", "first_side", "second_side"),
    )


class Worker(Table):
    """A worker process. beat grows with every sign of life; who watches it judges by his own clock, not by `seen`."""

    __tablename__ = "workers"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    host: Mapped[str] = mapped_column(String(255), index=True)
    process: Mapped[int]
    process_started: Mapped[float]
    version: Mapped[str] = mapped_column(String(64))
    devices: Mapped[list[Any]] = mapped_column(default=list)
    state: Mapped[str] = mapped_column(String(16), default="active")
    beat: Mapped[int] = mapped_column(BigInteger, default=0)
    seen: Mapped[float] = mapped_column(default=time.time)
    started: Mapped[float] = mapped_column(default=time.time)
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict)


class DeviceLease(Table):
    """A device in use: the primary key makes a second lease of it impossible, whoever asks."""

    __tablename__ = "device_leases"
    host: Mapped[str] = mapped_column(String(255), primary_key=True)
    device: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    fence: Mapped[int]
    worker_id: Mapped[str] = mapped_column(String(32))
    since: Mapped[float] = mapped_column(default=time.time)
