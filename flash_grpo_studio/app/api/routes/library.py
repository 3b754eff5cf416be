"""Reward profiles and base models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError
from flash_grpo.planning.architecture import BUILT_IN
from flash_grpo.rewards.registry import load_card
from flash_grpo_studio.app.api.base import Cursor, Done, Limit, PageOf, Person, ProfileId, Strict, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.routes.prompts import unique_name
from flash_grpo_studio.app.api.who import Parts, Reader, Writer
from flash_grpo_studio.app.jobs.access import Actor, fetch, visible
from flash_grpo_studio.app.jobs.change import tell
from flash_grpo_studio.app.store.listing import paged, user_names
from flash_grpo_studio.app.store.tables import BaseModelEntry, RewardProfile

router = subject("library")
RewardName = Annotated[str, Field(min_length=1, max_length=300)]
Weights = Annotated[dict[RewardName, float], Field(min_length=1, max_length=64)]
Options = dict[RewardName, dict[str, Any]]


class ProfileView(BaseModel):
    """Rewards with weights and options under a name."""

    id: str
    name: str
    owner: Person
    mine: bool
    shared: bool
    rewards: dict[str, float]
    reward_options: dict[str, dict[str, Any]]
    created: float


class ProfilePage(PageOf):
    """A page of reward profiles."""

    profiles: list[ProfileView]


class ProfileAsk(Strict):
    """A reward profile to make."""

    name: str = Field(min_length=1, max_length=200)
    rewards: Weights
    reward_options: Options = Field({})
    shared: bool = False


class ProfileEdit(Strict):
    """What to change; fields that are left out stay."""

    name: str | None = Field(None, min_length=1, max_length=200)
    rewards: Weights | None = None
    reward_options: Options | None = None
    shared: bool | None = None


class BaseModelView(BaseModel):
    """A base model the studio may train; `model` of a configuration names it by id or name."""

    id: str
    name: str
    source: str
    revision: str | None
    licence: str | None
    built_in: bool
    created: float | None


class BaseModelList(BaseModel):
    """Base models: the built-in ones first."""

    base_models: list[BaseModelView]


def _views(session: Session, actor: Actor, rows: list[RewardProfile]) -> list[ProfileView]:
    names = user_names(session, [row.owner_id for row in rows])
    same = ("id", "name", "shared", "rewards", "reward_options", "created")
    return [
        ProfileView(
            **{name: getattr(row, name) for name in same},
            owner=Person(id=row.owner_id, name=names.get(row.owner_id, "")),
            mine=row.owner_id == actor.user_id,
        )
        for row in rows
    ]


def _check(actor: Actor, rewards: dict[str, float], options: dict[str, Any]) -> None:
    for name in rewards:
        if ":" not in name:
            load_card(name)
        elif not actor.admin:
            raise InputError(f"the reward {name!r} is code on the server; only an administrator may name it")
    if strange := sorted(options.keys() - rewards.keys()):
        raise InputError(f"options for {', '.join(strange)}, which {'is' if len(strange) == 1 else 'are'} not chosen")


@router.get("/reward-profiles", response_model=ProfilePage, summary="Reward profiles")
def list_profiles(studio: Parts, actor: Reader, limit: Limit = 100, cursor: Cursor = None) -> ProfilePage:
    """One's own profiles and shared ones by name."""
    query = select(RewardProfile).where(visible(actor, RewardProfile))
    with studio.store.reading() as session:
        page = paged(session, query, [(RewardProfile.name, False), (RewardProfile.id, False)], limit, cursor)
        return ProfilePage(profiles=_views(session, actor, list(page.rows)), total=page.total, next=page.next)


@router.post(
    "/reward-profiles",
    status_code=201,
    response_model=ProfileView,
    responses=problems(409),
    summary="Make a reward profile",
)
def make_profile(studio: Parts, actor: Writer, asked: ProfileAsk) -> ProfileView:
    """Keep rewards, weights and options under a name."""
    _check(actor, asked.rewards, asked.reward_options)
    with unique_name("reward profile", asked.name), studio.store.writing() as session:
        row = RewardProfile(owner_id=actor.user_id, **asked.model_dump())
        session.add(row)
        session.flush()
        tell(session, None, "reward_profile_made", actor.user_id, profile=row.id, name=row.name)
        return _views(session, actor, [row])[0]


@router.get("/reward-profiles/{profile_id}", response_model=ProfileView, responses=problems(404), summary="A profile")
def get_profile(studio: Parts, actor: Reader, profile_id: ProfileId) -> ProfileView:
    """A reward profile."""
    with studio.store.reading() as session:
        return _views(session, actor, [fetch(session, actor, RewardProfile, profile_id)])[0]


@router.patch(
    "/reward-profiles/{profile_id}",
    response_model=ProfileView,
    responses=problems(404, 409),
    summary="Change a reward profile",
)
def edit_profile(studio: Parts, actor: Writer, profile_id: ProfileId, edit: ProfileEdit) -> ProfileView:
    """Another name, other rewards, shared or not."""
    with unique_name("reward profile", edit.name), studio.store.writing() as session:
        row = fetch(session, actor, RewardProfile, profile_id, change=True)
        for key, value in edit.model_dump(exclude_none=True).items():
            setattr(row, key, value)
        _check(actor, row.rewards, row.reward_options)
        session.flush()
        tell(session, None, "reward_profile_changed", actor.user_id, profile=row.id, name=row.name)
        return _views(session, actor, [row])[0]


@router.delete(
    "/reward-profiles/{profile_id}", response_model=Done, responses=problems(404), summary="Delete a reward profile"
)
def delete_profile(studio: Parts, actor: Writer, profile_id: ProfileId) -> Done:
    """Remove a reward profile."""
    with studio.store.writing() as session:
        row = fetch(session, actor, RewardProfile, profile_id, change=True)
        session.delete(row)
        tell(session, None, "reward_profile_deleted", actor.user_id, profile=row.id, name=row.name)
    return Done()


@router.get("/base-models", response_model=BaseModelList, summary="Base models")
def list_base_models(studio: Parts, actor: Reader) -> BaseModelList:
    """Built-in models, and those that were downloaded by jobs of kind download."""
    built_in = [
        BaseModelView(
            id=name, name=name, source="built in", revision=None, licence="Apache-2.0", built_in=True, created=None
        )
        for name in BUILT_IN
    ]
    with studio.store.reading() as session:
        rows = session.scalars(select(BaseModelEntry).order_by(BaseModelEntry.name)).all()
    same = ("id", "name", "source", "revision", "licence", "created")
    found = [BaseModelView(**{name: getattr(row, name) for name in same}, built_in=False) for row in rows]
    return BaseModelList(base_models=built_in + found)
