"""A real ComfyUI for tests: started headless in a folder of its own, asked as its page asks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

DIR, PYTHON = (os.environ.get(name, "") for name in ("COMFYUI_DIR", "COMFYUI_PYTHON"))
MISSING = "set COMFYUI_DIR and COMFYUI_PYTHON to run the node pack's tests in a real ComfyUI"
_WITH_CONTROL = ("seed", "noise_seed")
"""Widgets whose value is followed by what to do with it after a run."""


class Failed(Exception):
    """A graph that did not run to its end, with what ComfyUI said."""


class Comfy:
    """A running ComfyUI; `base` is the folder of its models, nodes, input and output."""

    def __init__(self, base: Path, port: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.base, self.log, self.process = base, log, process
        self.url = f"http://127.0.0.1:{port}"
        self._about: dict[str, Any] = {}

    def call(self, path: str, body: Any = None) -> Any:
        """GET, or POST of JSON; an error's body is the answer too."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data, {"Content-Type": "application/json"}), timeout=60) as answer:
                content = answer.read()
        except HTTPError as error:
            content = error.read()
        return json.loads(content) if content else None

    def queue(self, graph: Mapping[str, Any]) -> str:
        """Queue a graph in API form; its id."""
        answer = self.call("/prompt", {"prompt": graph, "client_id": uuid.uuid4().hex})
        if "prompt_id" not in answer or answer.get("node_errors"):
            raise Failed(json.dumps(answer))
        return str(answer["prompt_id"])

    def wait(self, prompt: str, seconds: float = 180) -> dict[str, Any]:
        """What a queued graph's nodes put out; Failed with the message of the node that failed."""
        until = time.monotonic() + seconds
        while prompt not in (history := self.call(f"/history/{prompt}")):
            assert time.monotonic() < until, f"ComfyUI did not finish within {seconds} s:\n{self.tail()}"
            time.sleep(0.1)
        entry = history[prompt]
        for kind, message in entry["status"]["messages"]:
            if kind == "execution_error":
                raise Failed(message["exception_message"])
            if kind == "execution_interrupted":
                raise Failed("interrupted")
        outputs: dict[str, Any] = entry["outputs"]
        return outputs

    def run(self, graph: Mapping[str, Any], seconds: float = 180) -> dict[str, Any]:
        """Queue a graph and wait for its end."""
        return self.wait(self.queue(graph), seconds)

    def api_form(self, workflow: Mapping[str, Any]) -> dict[str, Any]:
        """A workflow as its page saves it, as its page would queue it."""
        sources = {link[0]: [str(link[1]), link[2]] for link in workflow["links"]}
        return {str(node["id"]): self._api_node(node, sources) for node in workflow["nodes"]}

    def _api_node(self, node: Mapping[str, Any], sources: Mapping[int, list[Any]]) -> dict[str, Any]:
        inputs = {port["name"]: sources[port["link"]] for port in node["inputs"] if port["link"] is not None}
        values = list(node["widgets_values"])
        sockets = {port["name"] for port in node["inputs"]}
        about = self.about(node["type"])["input"]
        for name in (*about.get("required", ()), *about.get("optional", ())):
            if name not in sockets:
                inputs[name] = values.pop(0)
                if name in _WITH_CONTROL:
                    values.pop(0)
        assert not values, f"{node['type']} has {len(values)} values too many"
        return {"class_type": node["type"], "inputs": inputs}

    def about(self, kind: str) -> Any:
        """What ComfyUI tells of a node's class."""
        if kind not in self._about:
            self._about |= self.call(f"/object_info/{kind}")
        return self._about[kind]

    def tail(self) -> str:
        """The end of the server's log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


def installed(base: Path) -> Path:
    """A ComfyUI's base directory with the pack and the pocket model, as a user installs them; returns it."""
    from flash_grpo_studio.comfyui.pack import install_pack
    from flash_grpo_studio.comfyui.pocket import export_pocket

    for name in ("custom_nodes", "models", "input", "output", "user"):
        (base / name).mkdir()
    install_pack(base)
    export_pocket(base / "models")
    return base


@contextmanager
def running(base: Path) -> Iterator[Comfy]:
    """Start ComfyUI on a free port, and end it with all it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = base / "server.log"
    command = [PYTHON, "main.py", "--cpu", "--listen", "127.0.0.1", "--port", str(port), "--disable-api-nodes"]
    command += ["--base-directory", str(base), "--database-url", "sqlite:///:memory:", "--disable-auto-launch"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLASH_GRPO_")}
    environment |= {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=DIR, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        comfy = Comfy(base, port, log, process)
        try:
            _wait_until_ready(comfy)
            yield comfy
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def _wait_until_ready(comfy: Comfy, seconds: float = 180) -> None:
    until = time.monotonic() + seconds
    while True:
        assert comfy.process.poll() is None and time.monotonic() < until, f"ComfyUI did not start:\n{comfy.tail()}"
        try:
            comfy.call("/system_stats")
            return
        except OSError:
            time.sleep(0.3)
