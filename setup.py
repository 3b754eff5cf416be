"""What pyproject.toml cannot say: the ComfyUI node pack lies outside of the packages and is installed with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACK = Path(__file__).parent / "custom_nodes" / "comfyui_flash_grpo"


class BuildWithPack(build_py):
    """Copies the pack to where flash_grpo_studio.comfyui.pack looks for it; an editable install finds it in place."""

    def run(self) -> None:
        """Build the packages, then add the pack."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "flash_grpo_studio" / "comfyui" / "node_pack"
            shutil.copytree(PACK, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithPack})
