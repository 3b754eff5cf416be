"""An export sent to a hub, when somebody asks for it: verified before and after, resumed where it was broken off.

Imports no torch.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from flash_grpo.download import HTTP_ERROR, HUGGING_FACE, Hub
from flash_grpo.errors import InputError
from flash_grpo.files import disk_problem
from flash_grpo.sums import SUMS, verify
from flash_grpo.task import Task

REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
LONGEST_TOKEN = 500


def push(folder: Path, repo: str, task: Task, private: bool = True) -> dict[str, Any]:
    """Send an export's files to OWNER/NAME on the hub in one commit, making the repository where it is missing.

    The hub is HF_ENDPOINT, the token HF_TOKEN; a token saved on this machine is not used. Files the hub has already
    are not sent again. Raises InputError for what the user can change, RuntimeError for a hub that does not answer.
    """
    hub = _hub(repo)
    files = _verified(folder, task)
    total = sum(file.stat().st_size for file in files.values())
    api = HfApi(endpoint=hub.endpoint, token=hub.token)
    task.progress("upload", 0, total)
    with task.at_once(), _spoken(hub, repo):
        public = not _made(api, repo, private)
    _check_visibility(repo, private, public, task)
    operations = [CommitOperationAdd(name, file) for name, file in files.items()]
    done = 0
    for operation in operations:
        with task.at_once(), _spoken(hub, repo):
            api.preupload_lfs_files(repo, [operation], free_memory=False)
        done += files[operation.path_in_repo].stat().st_size
        task.progress("upload", done, total)
    with task.at_once(), _spoken(hub, repo):
        commit = api.create_commit(repo, operations, commit_message=_title(folder))
        present = api.model_info(repo, revision=commit.oid, files_metadata=True)
    _check_arrived(repo, files, {sibling.rfilename: sibling.size for sibling in present.siblings or ()})
    url = f"{hub.endpoint}/{repo}"
    task.result = {"repo": repo, "url": url, "commit": commit.oid, "private": not public, "bytes": total}
    task.result["files"] = sorted(files)
    task.message = f"Sent {len(files)} files to {url}."
    return task.result


def _hub(repo: str) -> Hub:
    """The hub to send to; InputError without a token or for what names no repository."""
    hub = Hub.of_environment()
    if not REPO.fullmatch(repo) or ".." in repo:
        raise InputError(f"expected a repository as OWNER/NAME, got {repo!r}; OWNER is you or an organisation of yours")
    if not hub.token:
        raise InputError("no token to send with: set HF_TOKEN to one that may write, made on the hub's settings page")
    if not hub.token.isascii() or not hub.token.isprintable() or " " in hub.token or len(hub.token) > LONGEST_TOKEN:
        raise InputError("what is in HF_TOKEN is no token: it holds signs that none has; copy it again from the hub")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # of what it tries again
    if hub.endpoint != HUGGING_FACE:
        constants.HF_HUB_DISABLE_XET = True  # a store that only this one hub has
    return hub


def _verified(folder: Path, task: Task) -> dict[str, Path]:
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the one that `flash-grpo export` wrote")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    files = verify(folder, lambda done: task.progress("verify", done, max(size, done)))
    return {**files, SUMS: folder / SUMS}


def _title(folder: Path) -> str:
    """What the commit is called: the run and the update that are exported."""
    try:
        facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))["metadata"]
        return f"Add {facts['flash_grpo.run']}, update {facts['flash_grpo.update']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"Add {folder.resolve().name}"


def _made(api: HfApi, repo: str, private: bool) -> bool:
    """Make the repository where it is missing; returns whether it is private."""
    try:
        return bool(api.model_info(repo).private)
    except RepositoryNotFoundError:
        api.create_repo(repo, private=private, exist_ok=True)  # perhaps it is there by now
        return bool(api.model_info(repo).private)


def _check_visibility(repo: str, private: bool, public: bool, task: Task) -> None:
    """A repository keeps what it is; what was to be private must not become public by that."""
    if private and public:
        raise InputError(
            f"{repo} is there already and public, and the export was to be private; choose another name, or send it as "
            "public"
        )
    if not private and not public:
        task.warn(f"{repo} is there already and private, and stays so; change it on its page", "stays_private")


def _check_arrived(repo: str, files: Mapping[str, Path], present: Mapping[str, int | None]) -> None:
    """The hub hashes large files itself; that all are there, and as long as they were, remains to be seen."""
    for name, file in files.items():
        if present.get(name, -1) not in (None, file.stat().st_size):
            raise RuntimeError(f"{name} did not arrive whole in {repo}; repeat the command")


@contextmanager
def _spoken(hub: Hub, repo: str) -> Iterator[None]:
    """Within this context the hub's errors become sentences without the token."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the hub about metadata; its errors come through
            yield
    except HFValidationError as error:
        raise InputError(f"the hub does not take the name {repo!r}; use letters, digits, '-', '_' and '.'") from error
    except OfflineModeIsEnabled as error:
        raise InputError("HF_HUB_OFFLINE forbids to send anything; unset it") from error
    except (HTTP_ERROR, OSError, RuntimeError, ValueError) as error:
        if disk_problem(error):
            raise
        raise _sentence(hub, repo, error) from None  # what it was raised from may hold the token


def _sentence(hub: Hub, repo: str, error: Exception) -> Exception:
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
    response = getattr(cause, "response", None)
    status = getattr(response, "status_code", None)
    owner = repo.partition("/")[0]
    if status == 401 and not isinstance(cause, RepositoryNotFoundError):
        return InputError(f"{hub.endpoint} does not know the token (401); make one that may write, and set it anew")
    if status == 403:
        return InputError(
            f"the token may not write to {owner} on {hub.endpoint} (403): it only reads, or {repo} belongs to somebody "
            "else; use a token that may write, or a name of your own"
        )
    if status in (401, 404):
        return InputError(f"{hub.endpoint} shows no repository {repo} to this token; check its name and the token")
    if status is not None and 400 <= status < 500 and status not in (408, 429):
        return InputError(f"{hub.endpoint} refuses {repo} ({status}): {_reason(hub, cause)}")
    if isinstance(cause, ValueError) and not isinstance(cause, HTTP_ERROR):
        return InputError(f"the hub refuses {repo}: {_reason(hub, cause)}")
    said = f"status {status}" if status else hub.said(cause)
    return RuntimeError(
        f"cannot send to {repo} on {hub.endpoint} ({said}); check the connection and repeat it: what arrived is kept"
    )


def _reason(hub: Hub, error: BaseException) -> str:
    """What the hub said in its own words, on one line."""
    text = getattr(error, "server_message", None) or str(error)
    line = " ".join(text.split())[:300]
    return line.replace(hub.token, "***") if hub.token else line
