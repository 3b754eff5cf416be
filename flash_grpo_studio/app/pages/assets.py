"""The pages' own scripts, styles and words, held in memory. A hash of all is in their address, so a browser keeps them
for good; which script needs which others is read from them, so a page asks for all at once.
"""

from __future__ import annotations

import gzip
import mimetypes
import posixpath
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

HELD = (".js", ".css", ".json", ".svg")
"""What is held in memory; videos are read from the disk, in parts where asked."""
FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
VERSION_LENGTH = 16
_IMPORT = re.compile(r'^(?:import|export)\b[^;"(]*"(\.{1,2}/[^"]+\.js)"', re.MULTILINE)
_VERSIONED = re.compile(rf"^([0-9a-f]{{{VERSION_LENGTH}}})/(.+)$")


@dataclass(frozen=True)
class Asset:
    """One file; `imports` are the scripts it cannot begin without, by their paths."""

    content: bytes
    packed: bytes
    kind: str
    etag: str
    imports: tuple[str, ...] = ()


class Assets:
    """The files of a folder as they are now; who edits one while the studio runs sees it with the next page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._static = StaticFiles(directory=folder)
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._files: dict[str, Asset] = {}
        self._version = ""
        self.refresh()

    @property
    def root(self) -> str:
        """The address below which the files are as they are now."""
        return f"/web/{self._version}"

    def refresh(self) -> None:
        """Read the files again if one has changed."""
        paths = [path for path in sorted(self.folder.rglob("*")) if path.suffix in HELD and path.is_file()]
        facts = [(path, path.stat()) for path in paths]
        stamp = tuple((str(path), fact.st_mtime_ns, fact.st_size) for path, fact in facts)
        if stamp == self._stamp:
            return
        files = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}
        total = sha256()
        for name, content in files.items():
            total.update(f"{name}\0{len(content)}\0".encode() + content)
        self._files = {name: _asset(name, content) for name, content in files.items()}
        self._version, self._stamp = total.hexdigest()[:VERSION_LENGTH], stamp

    def needed(self, *scripts: str) -> list[str]:
        """These scripts and all that they import, each once, by their paths."""
        found: dict[str, None] = {}
        waiting = list(scripts)
        while waiting:
            name = waiting.pop(0)
            if name in found or name not in self._files:
                continue
            found[name] = None
            waiting += self._files[name].imports
        return list(found)

    async def serve(self, request: Request) -> Response:
        """Answer /web/PATH and /web/VERSION/PATH."""
        path = str(request.path_params["path"])
        versioned = _VERSIONED.match(path)
        name = versioned[2] if versioned else path
        asset = self._files.get(name)
        if asset is None:
            return await self._static.get_response(name, request.scope)
        now = versioned is not None and versioned[1] == self._version
        headers = {
            "Cache-Control": FOREVER if now else ASK_AGAIN,
            "ETag": asset.etag,
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(asset.packed, media_type=asset.kind, headers={**headers, "Content-Encoding": "gzip"})
        return Response(asset.content, media_type=asset.kind, headers=headers)


def _asset(name: str, content: bytes) -> Asset:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    imports: tuple[str, ...] = ()
    if name.endswith(".js"):
        folder = posixpath.dirname(name)
        written = _IMPORT.findall(content.decode("utf-8"))
        imports = tuple(posixpath.normpath(posixpath.join(folder, other)) for other in written)
    return Asset(content, gzip.compress(content, 6, mtime=0), kind, f'"{sha256(content).hexdigest()[:32]}"', imports)
