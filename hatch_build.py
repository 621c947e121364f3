"""Compiles the C files of Forebay into the wheel.

The environment variable FOREBAY_WHEEL selects the wheel:

- not set: compile for this machine. Without a compiler, or on a system other than Linux, everything else is installed.
- `pure`: do not compile. The wheel fits every system. Its doctor cannot record GPU activity. Its feeds compute row
  numbers and gather rows with NumPy, and resize images with Pillow.
- a platform tag, such as `manylinux_2_17_aarch64`: compile with the compiler in CC, which must build for this platform.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    Path("src/forebay/doctor/capture/device/buffers.c"),
    Path("src/forebay/order/number_rows.c"),
    Path("src/forebay/sources/gather_rows.c"),
    Path("src/forebay/sources/formats/resize_pixels.c"),
)
# Without contraction, processors with and without fused multiply-add compute the same weights of pixels.
OPTIONS = ("-O3", "-ffp-contract=off", "-fPIC", "-shared")
WITHOUT = (
    "the doctor does not record GPU activity without buffers.c",
    "NumPy computes row numbers without number_rows.c",
    "NumPy gathers rows without gather_rows.c",
    "Pillow resizes images without resize_pixels.c",
)


class CompileHook(BuildHookInterface):
    """Compiles the C files when hatchling builds a wheel.

    The wheel fits one platform and every Python version, because ctypes loads the libraries.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        kind = os.environ.get("FOREBAY_WHEEL", "")
        if kind == "pure":
            build_data["tag"] = "py3-none-any"
            return
        problems = {source: self._compile(source) for source in SOURCES} if sys.platform.startswith("linux") else {}
        compiled = [source for source, problem in problems.items() if not problem]
        problem = "; ".join(filter(None, problems.values())) if problems else "this system is not Linux"
        if problem and kind:
            raise SystemExit(f"the wheel for {kind} was not built: {problem}")
        if problem:
            self.app.display_warning(f"parts of Forebay were not compiled ({', '.join(WITHOUT)}): {problem}")
        if compiled:
            build_data["artifacts"] += [f"/{source.with_suffix('.so')}" for source in compiled]
            build_data["tag"] = f"py3-none-{kind or _local_platform()}"

    def _compile(self, source: Path) -> str:
        """Compile a library. Return the reason if this failed, else an empty text."""
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None or shutil.which(compiler.split()[0]) is None:
            return f"no C compiler was found (CC={compiler or ''}). Install gcc and reinstall."
        path = Path(self.root) / source
        output = str(path.with_suffix(".so"))
        command = [*compiler.split(), *OPTIONS, "-o", output, str(path), "-lpthread", "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"{source.name} did not compile: {done.stderr}" if done.returncode else ""


def _local_platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
