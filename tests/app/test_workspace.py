"""No path leaves the workspace, and all machines see one token."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo_studio.app.workspace import Workspace


def test_the_token_stays(tmp_path: Path) -> None:
    token = Workspace(tmp_path / "w").prepare()
    assert len(token) == 32
    assert Workspace(tmp_path / "w").prepare() == token
    assert Workspace(tmp_path / "other").prepare() != token


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "jobs/../../secret", "link/secret", "jobs/\0x"])
def test_no_path_leaves_the_workspace(tmp_path: Path, path: str) -> None:
    workspace = Workspace(tmp_path / "w")
    workspace.prepare()
    (workspace.folder / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="workspace"):
        workspace.inside(path)


def test_files_inside_are_found(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    workspace.prepare()
    path = workspace.run("abc") / "videos" / "a.mp4"
    assert workspace.relative(path) == "jobs/abc/run/videos/a.mp4"
    assert workspace.inside(workspace.relative(path)) == path


def test_a_workspace_that_cannot_be_made_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another with --workspace"):
        Workspace(tmp_path / "file" / "w").prepare()
