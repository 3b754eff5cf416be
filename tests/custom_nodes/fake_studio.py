"""A small server that answers as the studio's API does, and misbehaves on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "right-token"
JOB = "0123456789abcdef"
REMOVED = "fedcba9876543210"
"""An export whose files are gone."""


class FakeStudio(ThreadingHTTPServer):
    """Serves one exported adapter and one job; `wrong` says how it misbehaves."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.adapter = b"not really an adapter" * 1000
        self.entry: dict[str, Any] = {}
        self.wrong = ""
        self.states = ["queued", "running", "succeeded"]
        self.asked: list[tuple[str, str | None]] = []
        self.sent: list[Any] = []
        self.uploaded = b""
        self.result: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def fake_studio() -> Iterator[FakeStudio]:
    """A server that runs while the context lasts."""
    server = FakeStudio()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeStudio

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._count()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._json(401, {"error": {"code": "not_logged_in", "message": "log in first"}})
        path = self.path.partition("?")[0]
        if self.server.wrong == "redirect":
            self.send_response(302)
            self.send_header("Location", "http://example.invalid/")
            self.end_headers()
            return None
        if self.server.wrong == "html":
            return self._answer(200, b"<html>a proxy's page</html>")
        if self.server.wrong == "gone" or (JOB not in path and path != "/api/v1/jobs"):
            said = {"message": "no job <b>here</b>", "what_to_do": "look elsewhere"}
            return self._json(404, {"error": said})
        if path == "/api/v1/jobs":
            return self._json(200, {"jobs": [{"id": JOB}, {"id": REMOVED}]})
        if path.endswith("/export"):
            return self._json(200, self._listing())
        if path.endswith("/content"):
            content = self.server.adapter
            return self._answer(200, content[:-5] if self.server.wrong == "short" else content)
        if path.endswith("/videos"):
            return self._json(200, {"videos": [{"id": JOB}]})
        return self._json(200, self._job())

    def do_POST(self) -> None:
        self._count()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/v1/uploads":
            self.server.uploaded = body
            return self._json(201, {"id": JOB})
        self.server.sent.append(json.loads(body))
        if self.server.wrong == "invalid":
            fields = [{"field": "overrides.frames", "message": "must be 4n+1, got 10"}]
            return self._json(422, {"error": {"message": "the request cannot be used", "fields": fields}})
        return self._json(201, self._job())

    def _count(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))

    def _listing(self) -> dict[str, Any]:
        content = self.server.adapter
        entry = {
            "name": "first-000020.safetensors",
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "url": f"/api/v1/files/{JOB}/content",
            **self.server.entry,
        }
        files = [{"name": "README.md"}, entry]
        return {"format": "adapter", "run": "first", "checkpoint": "20", "files": files}

    def _job(self) -> dict[str, Any]:
        states = self.server.states
        state = states.pop(0) if len(states) > 1 else states[0]
        progress = {"update": 3, "updates": 80, "eta_seconds": 120.0}
        return {
            "id": JOB,
            "name": "pocket: <i>size</i>",
            "state": state,
            "progress": progress,
            "message": "",
        } | self.server.result

    def _json(self, status: int, value: Any) -> None:
        self._answer(status, json.dumps(value).encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
