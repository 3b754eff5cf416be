"""Users' tokens for a hub: written, used by the job that sends an export, removed, and never shown again.

Each is a file that nobody but the studio's own user reads, as all machines share the workspace; no row, event, log,
message or command line holds one.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from flash_grpo.errors import InputError
from flash_grpo_studio.app.workspace import Workspace

_TOKEN = re.compile(r"[!-~]{8,200}")


def keep(workspace: Workspace, user_id: str, token: str) -> None:
    """Keep a user's token in place of an earlier one; InputError, which does not repeat it, for what can be none."""
    if not _TOKEN.fullmatch(token):
        raise InputError("expected a token of 8 to 200 printable characters without spaces; copy it again from the hub")
    file = _file(workspace, user_id)
    for folder in (file.parent.parent, file.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
        ) as stream:
            stream.write(token)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def forget(workspace: Workspace, user_id: str) -> None:
    """Remove a user's token, if there is one."""
    _file(workspace, user_id).unlink(missing_ok=True)


def has(workspace: Workspace, user_id: str) -> bool:
    """Whether a user has a token."""
    return _file(workspace, user_id).is_file()


def read(workspace: Workspace, user_id: str) -> str:
    """A user's token, for the process that sends; InputError if there is none any more."""
    try:
        return _file(workspace, user_id).read_text(encoding="ascii")
    except (OSError, ValueError):
        raise InputError("there is no hub token any more; set one in Settings, then press Retry") from None


def _file(workspace: Workspace, user_id: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{1,32}", user_id):
        raise InputError(f"no user {user_id!r}")
    return workspace.folder / "secrets" / "hub" / user_id
