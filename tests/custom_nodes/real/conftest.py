"""One real ComfyUI for all of its tests, with the pack, the pocket model and some models of other shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.custom_nodes.real.comfyui import DIR, MISSING, PYTHON, Comfy, installed, running

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark this folder's tests; without a ComfyUI one of them stands for all, so that their absence takes one line."""
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.comfyui)
    if ours and not (DIR and PYTHON):
        ours[0].add_marker(pytest.mark.skip(reason=MISSING))
        config.hook.pytest_deselected(items=ours[1:])
        items[:] = [item for item in items if item not in ours[1:]]


@pytest.fixture(scope="session")
def comfy_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ComfyUI's base directory with the pack and the pocket model, installed as a user would."""
    return installed(tmp_path_factory.mktemp("comfyui"))


@pytest.fixture(scope="session")
def comfy(comfy_base: Path) -> Iterator[Comfy]:
    """The running server."""
    with running(comfy_base) as server:
        yield server
