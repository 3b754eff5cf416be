"""A small hub on this machine: the few routes a download needs, and the ways in which it can go wrong."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubState:
    """One repository `someone/small`, what goes wrong with it, and the requests that came."""

    files: dict[str, bytes]
    large: set[str] = field(default_factory=set)
    card: dict[str, Any] | None = field(default_factory=lambda: {"license": "apache-2.0"})
    commit: str = COMMIT
    cut_at: int | None = None
    """Bytes after which the connection of a large file is cut, once."""
    refuse_after_cut: bool = False
    wrong_hash: str | None = None
    gated: int | None = None
    token: str | None = None
    elsewhere: str | None = None
    """Another origin that large files are redirected to."""
    delay: float = 0.0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    cuts: int = 0

    def info(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.files.items():
            blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
            if name in self.large:
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            if name == self.wrong_hash:
                entry["blobId"] = "0" * 40
                if "lfs" in entry:
                    entry["lfs"]["sha256"] = "0" * 64
            siblings.append(entry)
        return {"id": "someone/small", "sha": self.commit, "siblings": siblings, "cardData": self.card, "tags": []}

    def ranges(self) -> list[str]:
        """The parts of files that were asked for."""
        return [headers["range"] for _, _, headers in self.requests if "range" in headers]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.state.requests.append((self.command, path, {k.lower(): v for k, v in self.headers.items()}))
        if self.state.token and self.headers.get("authorization") != f"Bearer {self.state.token}":
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif match := re.fullmatch(r"/api/models/someone/small(?:/revision/(.+))?", path):
            known = match[1] in (None, "main", "v1", self.state.commit)
            missing = {"X-Error-Code": "RevisionNotFound"}
            self._send(200, json.dumps(self.state.info()).encode()) if known else self._send(404, b"{}", missing)
        elif match := re.fullmatch(rf"/someone/small/resolve/{self.state.commit}/(.+)", path):
            self._file(match[1])
        else:
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})  # so the hub answers for what does not exist

    def _file(self, name: str) -> None:
        state, content = self.state, self.state.files[name]
        if state.gated:
            self._send(state.gated, b"{}", {"X-Error-Code": "GatedRepo"})
            return
        if state.elsewhere and name in state.large:
            self._send(302, b"", {"Location": state.elsewhere + self.path})
            return
        if state.refuse_after_cut and state.cuts and name in state.large:
            self._send(500, b"{}")
            return
        status, headers = 200, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": state.commit}
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", "")):
            status, start = 206, int(match[1])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        cut = name in state.large and state.cut_at is not None and not state.cuts
        self._send(status, content, headers, state.cut_at if cut else None)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut is not None:
            self.state.cuts += 1
            self.close_connection = True
            body = body[:cut]
        try:
            if self.state.delay:
                self.wfile.write(body[: len(body) // 2])
                threading.Event().wait(self.state.delay)
                body = body[len(body) // 2 :]
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


@contextmanager
def serving(state: HubState) -> Iterator[str]:
    """Serve within this context; yields the address."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
