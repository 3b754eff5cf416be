"""A client of the studio's REST API: plain urllib, one error, and the token goes to the studio alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from .problem import Problem, plain
from .studio_settings import Access

API = "/api/v1"
SECONDS = 10.0
MAX_ANSWER = 8 * 2**20
PIECE = 2**20
LISTED = 30
"""Newest exports that are offered; each takes a request."""
JOB = re.compile(r"[0-9a-f]{16}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotThere(Problem):
    """What was asked for is not there, or not any more."""


@dataclass(frozen=True)
class Exported:
    """A checkpoint that a studio has exported as an adapter."""

    job: str
    run: str
    update: str

    @property
    def name(self) -> str:
        """As lists show it; `job_of` reads it back."""
        return f"studio: {plain(self.run, 80)}, update {plain(self.update, 20)} [{self.job}]"


def job_of(name: str) -> str | None:
    """The export a listed name stands for; None for a file of this machine."""
    match = re.fullmatch(r"studio: .*\[([0-9a-f]{16})\]", name, re.DOTALL)
    return match[1] if match else None


class Studio:
    """One studio, asked with one token."""

    def __init__(self, access: Access, seconds: float = SECONDS) -> None:
        self.access, self.seconds = access, seconds

    def get(self, path: str) -> Any:
        """The JSON answer to GET /api/v1PATH."""
        with self._open(Request(self._url(path))) as answer:
            return self._read(answer)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer to POST /api/v1PATH."""
        request = Request(self._url(path), json.dumps(body).encode(), {"Content-Type": "application/json"})
        with self._open(request) as answer:
            return self._read(answer)

    def upload(self, file: Path) -> str:
        """Send a video; its id."""
        boundary = f"flash-grpo-{os.urandom(12).hex()}"
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'
        body = head.encode() + file.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        form = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        with self._open(Request(self._url("/uploads"), body, form)) as answer:
            return str(self._read(answer)["id"])

    def exports(self) -> list[Exported]:
        """Adapters that were exported, newest first."""
        page = self.get(f"/jobs?kind=export&state=succeeded&sort=-created&limit={LISTED}")
        found = []
        for job in page["jobs"]:
            try:
                about = self.get(f"/jobs/{job_id(job['id'])}/export")
            except NotThere:  # its files were removed since
                continue
            if about["format"] == "adapter":
                found.append(Exported(job["id"], str(about["run"]), str(about["checkpoint"])))
        return found

    def fetch_adapter(
        self, job: str, folder: Path, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Path:
        """The adapter of an export in `folder`, downloaded unless it is there, its SHA-256 checked either way.

        `told` hears how many bytes of how many are there; what it raises ends the download and leaves nothing behind.
        """
        listed = self.get(f"/jobs/{job_id(job)}/export")
        weights = [entry for entry in listed["files"] if str(entry["name"]).endswith(".safetensors")]
        if listed.get("format") != "adapter" or len(weights) != 1:
            raise Problem(f"export {job} of the studio is no adapter; export the run as adapter there")
        entry = weights[0]
        size, digest = int(entry["bytes"]), str(entry["sha256"]).lower()
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise Problem("the studio names no checksum for the checkpoint; update the studio")
        file = folder / f"{_harmless(entry['name'])}-{digest[:12]}.safetensors"
        if file.is_file() and file.stat().st_size == size and _digest(file) == digest:
            return file
        with self._open(Request(self._inside(str(entry["url"])))) as answer, _arriving(file) as stream:
            done = _copy(answer, stream, size, told)
            stream.flush()
            if done != size or _digest(Path(stream.name)) != digest:
                raise Problem(
                    f"the checkpoint {file.name} did not arrive as the studio has it ({done} of {size} bytes, or "
                    "another checksum); queue again to repeat the download"
                )
        return file

    def _url(self, path: str) -> str:
        return f"{self.access.url}{API}{path}"

    def _inside(self, url: str) -> str:
        """An address the studio gave, which must be its own."""
        whole = urljoin(f"{self.access.url}/", url)
        if urlsplit(whole)[:2] != urlsplit(self.access.url)[:2]:
            raise Problem("the studio names a file on another server, which is not fetched; ask its administrator")
        return whole

    @contextmanager
    def _open(self, request: Request) -> Iterator[HTTPResponse]:
        if self.access.token:
            request.add_header("Authorization", f"Bearer {self.access.token}")
        try:
            with _opener(self.access.url).open(request, timeout=self.seconds) as answer:
                yield answer
        except HTTPError as error:
            with error:
                raise self._refusal(error) from error
        except (URLError, OSError, HTTPException) as error:
            if isinstance(error, OSError) and not isinstance(error, URLError | TimeoutError | ConnectionError):
                raise  # our own disk
            reason = plain(getattr(error, "reason", None) or error, 100) or type(error).__name__
            raise Problem(
                f"cannot reach the studio at {self.access.url} ({reason}); start it, or correct the address in "
                f"{self.access.source}"
            ) from error

    def _refusal(self, error: HTTPError) -> Problem:
        if error.code == 401:
            return Problem(
                f"the studio at {self.access.url} does not know this token; make a new one there (Settings) and put "
                f"it where {self.access.source} is"
            )
        if 300 <= error.code < 400:
            return Problem(f"{self.access.url} sends to another address; give the studio's own in {self.access.source}")
        try:
            said = json.loads(error.read(MAX_ANSWER))["error"]
            fields = "; ".join(f"{entry['field']}: {entry['message']}" for entry in said.get("fields") or ())
            text = plain(". ".join(filter(None, (said["message"], fields, said.get("what_to_do")))), 600)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
            text = f"error {error.code}; is {self.access.url} a studio?"
        return (NotThere if error.code in (404, 409) else Problem)(f"the studio says: {text}")

    def _read(self, answer: HTTPResponse) -> Any:
        content = answer.read(MAX_ANSWER + 1)
        try:
            if len(content) > MAX_ANSWER:
                raise ValueError("too long")
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Problem(f"{self.access.url} does not answer as a studio does; correct the address") from error


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would carry the token to wherever it leads."""

    def redirect_request(self, *arguments: Any) -> None:
        """Follow none."""


def _opener(url: str) -> OpenerDirector:
    """Proxies are for the world outside this machine."""
    own = [ProxyHandler({})] if urlsplit(url).hostname in _LOOPBACK else []
    return build_opener(_NoRedirects, *own)


def job_id(text: object) -> str:
    """A job's id, safe to put into an address."""
    if not isinstance(text, str) or not JOB.fullmatch(text):
        raise Problem(f"expected a job of 16 hexadecimal digits, got {plain(text, 40)!r}; copy it from the studio")
    return text


def _harmless(name: object) -> str:
    stem = str(name).replace("\\", "/").rpartition("/")[2].removesuffix(".safetensors")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-")[:80] or "adapter"


def _digest(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(PIECE):
            found.update(piece)
    return found.hexdigest()


@contextmanager
def _arriving(file: Path) -> Iterator[Any]:
    """A file under a temporary name that is renamed when all went well and removed otherwise."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", suffix=".part", delete=False) as stream:
        try:
            yield stream
            stream.close()
            os.replace(stream.name, file)
        finally:
            stream.close()
            Path(stream.name).unlink(missing_ok=True)


def _copy(answer: HTTPResponse, stream: Any, size: int, told: Callable[[int, int], None]) -> int:
    """Copy up to one byte more than was announced; how many came."""
    done = 0
    while done <= size and (piece := answer.read(min(PIECE, size + 1 - done))):
        stream.write(piece)
        done += len(piece)
        told(done, size)
    return done
