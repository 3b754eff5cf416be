"""Users, passwords, tokens and sessions: who somebody is. What they may do is decided in `app.jobs.access`."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError, unknown_name
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.jobs.change import NotFound, tell
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import (
    ROLES,
    ApiToken,
    BaseModelEntry,
    File,
    Job,
    PromptSet,
    RewardProfile,
    Role,
    User,
    Video,
)

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LOCAL = "local"
"""The implicit administrator of a studio that only this machine reaches and that has no login."""
SCOPES = ("read", "write", "admin")
TOKEN_PREFIX = "fgs_"
"""By which a leaked token is recognised, and blotted out."""
SESSION_SECONDS = 14 * 86400.0
SHORTEST_PASSWORD = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_OWNED = (Job, Video, File, PromptSet, RewardProfile, BaseModelEntry)
_hashing = threading.Semaphore(2)
"""A hash takes 64 MB while it is made; a flood of logins must not take more."""


@dataclass(frozen=True)
class Secret:
    """A new credential; `text` is shown once and kept nowhere."""

    text: str
    row: ApiToken


def digest(secret: str) -> str:
    """What the store keeps of a credential; as it is random and long, a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def allowed_scopes(role: str) -> tuple[str, ...]:
    """The scopes that mean something for a role."""
    return {"viewer": ("read",), "creator": ("read", "write")}.get(role, SCOPES)


class Accounts:
    """Users and their credentials in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def login_needed(self) -> bool:
        """Whether somebody has a password, so that everybody must log in."""
        with self.store.reading() as session:
            return session.scalar(select(User.id).where(User.password_hash.is_not(None)).limit(1)) is not None

    def local_admin(self) -> Actor:
        """The implicit administrator, made where missing."""
        with self.store.reading() as session:
            user = session.scalar(select(User).where(User.name == LOCAL))
        if user is None:
            try:
                user = self._insert(LOCAL, "admin", None)
            except InputError:  # another process was faster
                return self.local_admin()
        return Actor(user.id, user.name, "admin")

    def users(self) -> Sequence[User]:
        """All users by name."""
        with self.store.reading() as session:
            return session.scalars(select(User).order_by(User.name)).all()

    def named(self, name: str) -> User:
        """The user of a name; InputError suggests the nearest names."""
        with self.store.reading() as session:
            user = session.scalar(select(User).where(User.name == name))
            if user is None:
                raise unknown_name("user", name, session.scalars(select(User.name)).all())
            return user

    def add(self, name: str, role: str, password: str | None, by: str | None = None) -> User:
        """Add a user. Raises InputError: a name that is taken or has strange signs, unknown role, short password."""
        if not _NAME.fullmatch(name):
            raise InputError(
                f"expected a name of at most 64 letters, digits and . _ @ -, beginning with a letter or digit, got "
                f"{name!r}"
            )
        if role not in ROLES:
            raise unknown_name("role", role, ROLES)
        return self._insert(name, role, password_hash(password) if password is not None else None, by)

    def _insert(self, name: str, role: Role, hashed: str | None, by: str | None = None) -> User:
        try:
            with self.store.writing() as session:
                user = User(name=name, role=role, password_hash=hashed)
                session.add(user)
                session.flush()
                tell(session, None, "user_added", by, user=user.id, name=name, role=role)
                return user
        except IntegrityError as error:
            raise InputError(f"there is a user {name!r} already; choose another name") from error

    def change(
        self,
        user_id: str,
        role: str | None = None,
        password: str | None = None,
        revoke: bool = False,
        by: str | None = None,
        keep_admin: bool = True,
    ) -> User:
        """Give a user another role or password, which ends all his sessions, or with `revoke` take every way in.

        keep_admin: refuse to leave the studio without an administrator who can log in.
        """
        if role is not None and role not in ROLES:
            raise unknown_name("role", role, ROLES)
        hashed = password_hash(password) if password is not None else None
        with self.store.writing() as session:
            user = _user(session, user_id)
            if keep_admin and (revoke or (role is not None and role != "admin")):
                _keep_an_admin(session, user)
            if role is not None:
                user.role = role
            if revoke:
                user.password_hash = None
                session.execute(delete(ApiToken).where(ApiToken.user_id == user.id))
            if hashed is not None:
                user.password_hash = hashed
                session.execute(delete(ApiToken).where(ApiToken.user_id == user.id, ApiToken.kind == "session"))
            changed = {"role": role, "password": password is not None, "revoked": revoke}
            tell(session, None, "user_changed", by, user=user.id, name=user.name, **changed)
            return user

    def remove(self, user_id: str, by: str | None = None, keep_admin: bool = True) -> None:
        """Remove a user who owns nothing any more; InputError says what is left, and how to take the way in only."""
        with self.store.writing() as session:
            user = _user(session, user_id)
            if keep_admin:
                _keep_an_admin(session, user)
            left = []
            for table in _OWNED:
                count = session.scalar(select(func.count()).select_from(table).where(table.owner_id == user_id))
                if count:
                    left.append(f"{count} {table.__tablename__.replace('_', ' ')}")
            if left:
                raise InputError(
                    f"{user.name} still owns {', '.join(left)}; delete these first, or only take every way in by "
                    "revoking the user's password and tokens"
                )
            session.delete(user)
            tell(session, None, "user_removed", by, user=user_id, name=user.name)

    def check_password(self, name: str, password: str) -> User | None:
        """The user if the password is right; takes as long and says as little for a user who does not exist."""
        with self.store.reading() as session:
            user = session.scalar(select(User).where(User.name == name))
        hashed = user.password_hash if user is not None else None
        right = _verify(hashed or _nobody(), password)
        return user if right and hashed else None

    def issue(
        self,
        user: User | Actor,
        kind: str,
        name: str,
        scopes: Iterable[str],
        expires: float | None,
        by: str | None = None,
    ) -> Secret:
        """Make a token or a session. Raises InputError for unknown scopes, Forbidden for more than the role allows."""
        wanted = tuple(dict.fromkeys(scopes))
        for scope in wanted:
            if scope not in SCOPES:
                raise unknown_name("scope", scope, SCOPES)
        if excess := [scope for scope in wanted if scope not in allowed_scopes(user.role)]:
            raise Forbidden(f"a {user.role} cannot have the scope {', '.join(excess)}")
        if expires is not None and expires <= time.time():
            raise InputError("the token would have expired already; give a later time")
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        user_id = user.user_id if isinstance(user, Actor) else user.id
        with self.store.writing() as session:
            row = ApiToken(
                user_id=user_id, kind=kind, name=name, digest=digest(text), scopes=list(wanted), expires=expires
            )
            session.add(row)
            session.flush()
            tell(session, None, f"{kind}_made", by or user_id, token=row.id, name=name, scopes=list(wanted))
            return Secret(text, row)

    def actor(self, secret: str, kind: str) -> Actor | None:
        """Who holds a token or session; None if there is none such or it has expired."""
        query = select(ApiToken, User).join(User, User.id == ApiToken.user_id)
        query = query.where(ApiToken.digest == digest(secret), ApiToken.kind == kind)
        with self.store.reading() as session:
            found = session.execute(query).first()
        if found is None:
            return None
        token, user = found
        now = time.time()
        if token.expires is not None and token.expires <= now:
            return None
        with self._lock:
            self._used[token.id] = now
        scopes = frozenset(token.scopes) & frozenset(allowed_scopes(user.role))
        return Actor(user.id, user.name, cast("Role", user.role), scopes)

    def note_use(self) -> None:
        """Write down when credentials were last used, and forget the expired; called now and then, not by requests."""
        with self._lock:
            used, self._used = self._used, {}
        now = time.time()
        with self.store.reading() as session:
            expired = session.scalar(select(ApiToken.id).where(ApiToken.expires <= now).limit(1))
        if not used and expired is None:
            return
        with self.store.writing() as session:
            for token_id, moment in used.items():
                session.execute(update(ApiToken).where(ApiToken.id == token_id).values(last_used=moment))
            session.execute(delete(ApiToken).where(ApiToken.expires <= now))

    def end_session(self, secret: str) -> None:
        """Log out."""
        with self.store.writing() as session:
            session.execute(delete(ApiToken).where(ApiToken.digest == digest(secret), ApiToken.kind == "session"))

    def tokens(self, user_id: str) -> Sequence[ApiToken]:
        """A user's tokens for programs, newest first."""
        query = select(ApiToken).where(ApiToken.user_id == user_id, ApiToken.kind == "token")
        with self.store.reading() as session:
            return session.scalars(query.order_by(ApiToken.created.desc())).all()

    def remove_token(self, actor: Actor, token_id: str) -> None:
        """Revoke a token, one's own or as an administrator anybody's."""
        with self.store.writing() as session:
            token = session.get(ApiToken, token_id)
            if token is None or token.kind != "token" or (token.user_id != actor.user_id and not actor.admin):
                raise NotFound(f"no token {token_id!r}")
            session.delete(token)
            tell(session, None, "token_removed", actor.user_id, token=token_id, name=token.name)


def _user(session: Session, user_id: str) -> User:
    user = session.get(User, user_id)
    if user is None:
        raise NotFound(f"no user {user_id!r}")
    return user


def _keep_an_admin(session: Session, user: User) -> None:
    query = select(User.id).where(User.role == "admin", User.password_hash.is_not(None))
    admins = session.scalars(query.with_for_update()).all()
    if list(admins) == [user.id]:
        raise InputError(f"{user.name} is the only administrator who can log in; make another one first")


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()


def password_hash(password: str) -> str:
    """Hash a password; InputError if it is too short or long."""
    if not SHORTEST_PASSWORD <= len(password) <= 1000:
        raise InputError(f"expected a password of at least {SHORTEST_PASSWORD} and at most 1000 characters")
    with _hashing:
        return _hasher().hash(password.encode("utf-8", "surrogatepass"))


def _verify(hashed: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        with _hashing:
            return _hasher().verify(hashed, password.encode("utf-8", "surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False


_nobody_hash: list[str] = []


def _nobody() -> str:
    """A hash that no password fits, of the same cost as real ones."""
    if not _nobody_hash:
        _nobody_hash.append(password_hash(secrets.token_hex(32)))
    return _nobody_hash[0]
