"""A model of a Hugging Face hub, whole and verified in one folder: pinned to a commit, safe files only.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import ModelInfo, RepoSibling

from flash_grpo.errors import InputError
from flash_grpo.files import disk_problem, sync_folder, write_atomic
from flash_grpo.task import Task

Kind = Literal["model", "reward"]
KINDS: tuple[Kind, ...] = ("model", "reward")
SOURCE = "source.json"
HUGGING_FACE = "https://huggingface.co"
SAFE = {".safetensors", ".json", ".txt", ".md", ".model", ".jinja"}
"""Endings of files that are data whoever loads them; `.model` is SentencePiece's vocabulary."""
SAFE_NAMES = {"LICENSE", "LICENCE", "NOTICE", "COPYING"}
UNSAFE_WEIGHTS = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5"}
_PIECE = 2**22
_PART = ".part"

# The base of all errors of the HTTP library that the hub's client uses: it has changed between its versions.
HTTP_ERROR: type[Exception] = next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


@dataclass(frozen=True)
class Remote:
    """One file as the hub describes it: `sha256` of files in large storage, else git's hash of the blob."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


@dataclass(frozen=True)
class Listing:
    """A repository at one commit: the files to download, and what is left out because loading it may run code."""

    repo: str
    commit: str
    licence: str | None
    files: Sequence[Remote]
    left_out: Sequence[str]

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Hub:
    """Where to download from, and the token that opens it; both from the environment alone."""

    endpoint: str
    token: str | None

    @classmethod
    def of_environment(cls) -> Hub:
        """HF_ENDPOINT and HF_TOKEN; a token saved on this machine is not used."""
        endpoint = os.environ.get("HF_ENDPOINT") or HUGGING_FACE
        return cls(endpoint.rstrip("/"), os.environ.get("HF_TOKEN") or None)

    def headers(self) -> dict[str, str]:
        """Headers of a request."""
        return {"user-agent": "flash-grpo", **({"authorization": f"Bearer {self.token}"} if self.token else {})}

    @contextmanager
    def spoken(self, repo: str, revision: str | None) -> Iterator[None]:
        """Within this context the hub's errors become sentences: InputError for what the user can change."""
        try:
            yield
        except (HFValidationError, GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise InputError(self._refusal(error, repo, revision)) from error
        except OfflineModeIsEnabled as error:
            raise InputError("HF_HUB_OFFLINE forbids downloads; unset it, or copy the model by other means") from error
        except (HTTP_ERROR, OSError) as error:
            if disk_problem(error):
                raise
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                raise InputError(f"{self.endpoint} refuses {repo} ({status}); {self._token_advice()}") from error
            said = f"status {status}" if status else self.said(error)
            raise RuntimeError(
                f"cannot download {repo} from {self.endpoint} ({said}); check the connection and repeat the command: "
                "what has arrived is kept"
            ) from error

    def _refusal(self, error: Exception, repo: str, revision: str | None) -> str:
        if isinstance(error, HFValidationError):
            return f"expected a repository as OWNER/NAME, got {repo!r}; copy it from its page on the hub"
        if isinstance(error, GatedRepoError):
            return f"{repo} asks for consent before it is downloaded; accept its terms on its page and {self._token()}"
        if isinstance(error, RevisionNotFoundError):
            return f"{repo} has no revision {revision!r}; give a branch, a tag or a commit, or leave --revision out"
        return f"{self.endpoint} shows no repository {repo}; check its name, or if it is private {self._token()}"

    def _token(self) -> str:
        if self.token:
            return "use a token in HF_TOKEN whose account may read it"
        return "set HF_TOKEN to a token of an account that may read it"

    def _token_advice(self) -> str:
        return f"{'the token in HF_TOKEN does not open it' if self.token else 'it is not public'}: {self._token()}"

    def said(self, error: BaseException) -> str:
        """The first line of an error, without the token."""
        lines = str(error).strip().splitlines()
        said = lines[0] if lines else type(error).__name__
        return said.replace(self.token, "***") if self.token else said


def download(
    repo: str, output: Path, task: Task, kind: str = "model", revision: str | None = None,
    announce: Callable[[Listing], None] = lambda listing: None,
) -> dict[str, Any]:  # fmt: skip
    """Download a repository into a new folder and return what source.json in it says.

    The folder appears whole, after every file was compared with the hub's size and hash; until then what has arrived
    lies beside it, and a repeated download goes on from there. `announce` is told what will be downloaded.
    """
    if kind not in KINDS:
        raise InputError(f"expected the kind {' or '.join(KINDS)}, got {kind!r}; see `flash-grpo download --help`")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # of what it tries again
    hub = Hub.of_environment()
    task.progress("setup", 0, 1)
    with task.at_once(), hub.spoken(repo, revision):
        listing = _listing(HfApi(endpoint=hub.endpoint, token=hub.token or False), repo, revision)
    _refuse(listing, kind, task)
    if (known := _there_already(output, listing)) is not None:
        task.result, task.message = known, f"{repo} is there already."
        return known
    staging = output.with_name(f".{output.name}.{listing.commit[:12]}.partial")
    _make_room(output, staging, listing)
    announce(listing)
    fetched = sum(_held(staging, file) for file in listing.files)
    task.progress("download", fetched, listing.size)
    for file in listing.files:
        _fetch(hub, listing, file, staging, task, lambda more: task.progress("download", more, listing.size))
    record = {"kind": kind, "endpoint": hub.endpoint, **asdict(listing), "size": listing.size}
    write_atomic(staging / SOURCE, json.dumps(record, indent=1, ensure_ascii=False))
    _appear(staging, output)
    task.result = {"folder": str(output.resolve()), **record}
    task.message = f"Downloaded {repo}."
    return task.result


def _listing(api: HfApi, repo: str, revision: str | None) -> Listing:
    info = api.model_info(repo, revision=revision, files_metadata=True, timeout=30)
    siblings = info.siblings or []
    if not info.sha:
        raise RuntimeError(f"the hub names no commit of {repo}; it cannot be pinned, try again later")
    chosen = [sibling for sibling in siblings if is_safe(sibling.rfilename)]
    left_out = sorted({sibling.rfilename for sibling in siblings} - {sibling.rfilename for sibling in chosen})
    files = sorted((_remote(repo, sibling) for sibling in chosen), key=lambda file: file.path)
    return Listing(repo, info.sha, _licence(info), files, left_out)


def is_safe(name: str) -> bool:
    """Whether a file of a repository is downloaded: data by its ending, at a place within the folder."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and not any(part.startswith(".") or "\\" in part for part in path.parts)
    return inside and name != SOURCE and (path.suffix.lower() in SAFE or path.name.upper() in SAFE_NAMES)


def _remote(repo: str, sibling: RepoSibling) -> Remote:
    if sibling.size is None:
        raise RuntimeError(f"the hub names no size of {sibling.rfilename} in {repo}; try again later")
    return Remote(sibling.rfilename, sibling.size, sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id)


def _licence(info: ModelInfo) -> str | None:
    """The licence that the model card names, by its own name where it is none of the common ones."""
    card: dict[str, Any] = vars(info.card_data) if info.card_data else {}
    named = card.get("license")
    if named == "other" and card.get("license_name"):
        named = card["license_name"]
    if named is None:
        named = next((tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")), None)
    return ", ".join(map(str, named)) if isinstance(named, list) else str(named) if named else None


def _refuse(listing: Listing, kind: str, task: Task) -> None:
    """InputError for a repository that holds nothing usable; a warning for what will be missing."""
    names = {file.path for file in listing.files}
    weights = [name for name in names if name.endswith(".safetensors")]
    unsafe = [name for name in listing.left_out if PurePosixPath(name).suffix.lower() in UNSAFE_WEIGHTS]
    if not weights:
        found = f"it holds {unsafe[0]}, and loading such a file may run code" if unsafe else "it holds no weights"
        raise InputError(f"{listing.repo} has no safetensors weights: {found}; choose a repository that has them")
    if kind == "model" and "model_index.json" not in names:
        raise InputError(
            f"{listing.repo} is no diffusers pipeline: it has no model_index.json; choose the repository of its "
            "diffusers version (often NAME-Diffusers), or give --kind reward for a network alone"
        )
    large = next((file for file in listing.files if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE), None)
    if large is not None:
        raise InputError(
            f"{large.path} of {listing.repo} has {large.size / 1e9:.0f} GB, more than is fetched in one piece"
        )
    folders = {PurePosixPath(name).parent for name in weights}
    missing = [name for name in unsafe if PurePosixPath(name).parent not in folders]
    if missing:
        task.warn(f"{missing[0]} is left out, as loading it may run code, and no safetensors stand for it", "left_out")
    if listing.licence is None:
        task.warn(f"{listing.repo} names no licence; ask its owner before you use it", "no_licence")


def _there_already(output: Path, listing: Listing) -> dict[str, Any] | None:
    """What an earlier download of the same commit left; InputError if the folder holds anything else."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        record: dict[str, Any] = json.loads((output / SOURCE).read_text(encoding="utf-8"))
        same = (record["repo"], record["commit"]) == (listing.repo, listing.commit)
        if same and all((output / file.path).stat().st_size == file.size for file in listing.files):
            return {"folder": str(output.resolve()), **record}
    raise InputError(f"the output {output} exists and holds something else; choose another with --output")


def _make_room(output: Path, staging: Path, listing: Listing) -> None:
    """Make the folder to download into, and InputError if the disk has not enough room for what is missing."""
    try:
        for other in output.parent.glob(f".{output.name}.*.partial"):
            if other != staging:
                shutil.rmtree(other)  # of another commit
        staging.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(staging).free
    except OSError as error:
        raise InputError(
            f"cannot write to {output.parent}: {error.strerror or error}; choose another --output"
        ) from error
    missing = listing.size - sum(_held(staging, file) for file in listing.files)
    if missing > free:
        raise InputError(
            f"{listing.repo} needs {missing / 1e9:.2f} GB more and the disk of {output.parent} has {free / 1e9:.2f} GB "
            "free; make room or choose another --output"
        )


def _held(staging: Path, file: Remote) -> int:
    """Bytes of a file that have arrived."""
    for path in (staging / file.path, _part(staging, file)):
        if path.is_file():
            return min(path.stat().st_size, file.size)
    return 0


def _part(staging: Path, file: Remote) -> Path:
    return staging / f"{file.path}{_PART}"


class _Part(io.BufferedWriter):
    """A file that tells how long it has become."""

    told: Callable[[int], None] = staticmethod(lambda size: None)

    def write(self, data: Any, /) -> int:
        """Write and tell."""
        written = super().write(data)
        self.told(self.tell())
        return written


def _fetch(hub: Hub, listing: Listing, file: Remote, staging: Path, task: Task, told: Callable[[int], None]) -> None:
    """Bring one file into the staging folder, from where an earlier attempt stopped; it has its name once verified."""
    target, part = staging / file.path, _part(staging, file)
    if target.is_file():
        return  # verified before
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.exists() and (file.sha256 is None or part.stat().st_size > file.size):
        part.unlink()  # small files may travel compressed, where the middle cannot be asked for
    others = sum(_held(staging, other) for other in listing.files if other != file)
    url = hf_hub_url(listing.repo, file.path, revision=listing.commit, endpoint=hub.endpoint)
    start = part.stat().st_size if part.exists() else 0
    with _Part(io.FileIO(part, "r+" if start else "w")) as stream, hub.spoken(listing.repo, listing.commit):
        stream.seek(start)
        stream.told = lambda size: told(others + size)
        with task.at_once():
            http_get(url, stream, resume_size=start, headers=hub.headers(), expected_size=file.size)
        stream.flush()
        os.fsync(stream.fileno())
    if not _matches(part, file, task):
        part.unlink()
        raise RuntimeError(
            f"{file.path} of {listing.repo} does not match the hub's hash; it was removed, repeat the command to fetch "
            "it anew"
        )
    part.replace(target)


def _matches(path: Path, file: Remote, task: Task) -> bool:
    """Whether size and hash are the hub's; a file without any known hash is compared by size alone."""
    if path.stat().st_size != file.size:
        return False
    if file.sha256 is None and file.blob is None:
        return True
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            task.point()
    return digest.hexdigest() == (file.sha256 or file.blob)


def _appear(staging: Path, output: Path) -> None:
    if output.is_dir():
        output.rmdir()  # it was empty
    staging.rename(output)
    sync_folder(output.parent)
