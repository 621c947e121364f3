"""Compiles the C part of the doctor into the wheel. Without a compiler, everything else is installed."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/forebay/doctor/capture/device/buffers.c")
BUILT = SOURCE.with_name("buffers.so")


class CompileHook(BuildHookInterface):
    """Build hook. The wheel fits one platform and every Python version, because ctypes loads the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not sys.platform.startswith("linux") or not self._compile():
            return
        build_data["artifacts"].append(f"/{BUILT}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _compile(self) -> bool:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.app.display_warning("no C compiler was found: `forebay doctor` cannot record GPU activity. Install gcc and reinstall.")
            return False
        root = Path(self.root)
        command = [
            *compiler.split(),
            "-O2",
            "-fPIC",
            "-shared",
            "-o",
            str(root / BUILT),
            str(root / SOURCE),
            "-lpthread",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"buffers.c did not compile: {done.stderr}")
        return done.returncode == 0
