"""A small hub on this machine that takes uploads: the routes that a commit needs, and the ways in which it can fail."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml


@dataclass
class Repo:
    """A model repository: its files as committed, and whether it is private."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


@dataclass
class HubState:
    """Users by token with the right to write or not, repositories, large files by hash, and what came."""

    writers: dict[str, str] = field(default_factory=dict)
    """Token -> user who may write."""
    readers: dict[str, str] = field(default_factory=dict)
    repos: dict[str, Repo] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    puts: list[str] = field(default_factory=list)
    """Paths of large files that were sent, by hash."""
    fail_after: int | None = None
    """Large files that are taken before the store answers 400 for good."""
    busy: int | None = None
    """A status that every request is answered with."""
    delay: float = 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def handle_any(self) -> None:
        path, headers = self.path.partition("?")[0], {k.lower(): v for k, v in self.headers.items()}
        self.state.requests.append((self.command, path, headers))
        body = self._body()
        if self.state.delay:
            threading.Event().wait(self.state.delay)
        if self.state.busy:
            self._send(self.state.busy, {"error": "busy"})
        elif self.command == "PUT" and path.startswith("/storage/"):
            self._store(path.removeprefix("/storage/"), body)
        elif self._user() is None:
            self._send(
                401,
                {"error": "Invalid credentials"},
                {"X-Error-Message": "Invalid credentials in Authorization header"},
            )
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body))
        else:
            self._of_a_repo(path, body)

    do_GET = do_POST = do_PUT = handle_any

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def _user(self) -> str | None:
        return {**self.state.readers, **self.state.writers}.get(self._token())

    def _may_write(self, owner: str) -> bool:
        return self.state.writers.get(self._token()) == owner

    def _create(self, asked: dict[str, Any]) -> None:
        owner = asked.get("organization") or str(self._user())
        name = f"{owner}/{asked['name']}"
        if not self._may_write(owner):
            self._send(403, {"error": "You don't have the rights to create a model under this namespace"})
        elif name in self.state.repos:
            self._send(409, {"error": "You already created this model repo"})
        else:
            hidden = asked.get("visibility") == "private" or bool(asked.get("private"))
            self.state.repos[name] = Repo(hidden)
            self._send(200, {"url": f"{self._origin()}/{name}", "name": name})

    def _validate(self, asked: dict[str, Any]) -> None:
        try:
            metadata = yaml.safe_load(asked["content"].split("---\n")[1])
            wrong = [] if isinstance(metadata.get("tags", []), list) else ['"tags" must be an array']
            base = metadata.get("base_model")
            if base is not None and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(base)):
                wrong.append('"base_model" with value is not valid')
        except (yaml.YAMLError, IndexError, AttributeError):
            wrong = ["Metadata is not valid YAML"]
        errors = [{"message": text} for text in wrong]
        self._send(400 if wrong else 200, {"errors": errors, "warnings": []})

    def _of_a_repo(self, path: str, body: bytes) -> None:
        match = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+?)(\.git/info/lfs/objects/batch|/.+)?", path)
        repo = self.state.repos.get(match[1]) if match else None
        if match is None or repo is None or (repo.private and self._user() != match[1].partition("/")[0]):
            self._send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return
        name, rest = match[1], match[2] or ""
        if rest == "" or rest.startswith("/revision/"):
            self._send(200, self._info(name, repo))
        elif not self._may_write(name.partition("/")[0]):
            self._send(403, {"error": "Forbidden"}, {"X-Error-Message": "Forbidden: pass a token that may write"})
        elif rest.startswith("/preupload/"):
            self._modes(repo, json.loads(body))
        elif rest.endswith("/batch"):
            self._batch(json.loads(body))
        else:
            self._commit(repo, name, body)

    def _info(self, name: str, repo: Repo) -> dict[str, Any]:
        siblings = [{"rfilename": path, "size": len(content)} for path, content in repo.files.items()]
        sha = repo.commits[-1] if repo.commits else "0" * 40
        return {"id": name, "sha": sha, "private": repo.private, "siblings": siblings, "tags": []}

    def _modes(self, repo: Repo, asked: dict[str, Any]) -> None:
        found = []
        for file in asked["files"]:
            large = file["path"].endswith((".safetensors", ".webp", ".png")) or file["size"] > 10_000_000
            known = repo.files.get(file["path"])
            oid = None
            if known is not None:
                plain = hashlib.sha1(f"blob {len(known)}\0".encode() + known).hexdigest()
                oid = hashlib.sha256(known).hexdigest() if large else plain
            found.append(
                {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": oid}
            )
        self._send(200, {"files": found})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for wanted in asked["objects"]:
            entry: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.state.large:
                entry["actions"] = {"upload": {"href": f"{self._origin()}/storage/{wanted['oid']}?signature=x"}}
            objects.append(entry)
        self._send(200, {"transfer": "basic", "objects": objects})

    def _store(self, oid: str, body: bytes) -> None:
        """As a store behind signed addresses does: it asks for no token, and none must come."""
        if self.state.fail_after is not None and len(self.state.puts) >= self.state.fail_after:
            self._send(400, {"error": "the store is broken"})
        elif hashlib.sha256(body).hexdigest() != oid:
            self._send(400, {"error": "BadDigest"})
        else:
            self.state.large[oid] = body
            self.state.puts.append(oid)
            self._send(200, {})

    def _commit(self, repo: Repo, name: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                repo.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.state.large:
                    self._send(422, {"error": "a large file was not uploaded"})
                    return
                repo.files[value["path"]] = self.state.large[value["oid"]]
        repo.commits.append(hashlib.sha1(body).hexdigest())
        url = f"{self._origin()}/{name}/commit/{repo.commits[-1]}"
        self._send(200, {"success": True, "commitOid": repo.commits[-1], "commitUrl": url})

    def _origin(self) -> str:
        return f"http://{self.headers['host']}"

    def _send(self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


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
