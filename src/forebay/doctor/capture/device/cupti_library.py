"""Where CUPTI is, and our own buffers for it. One CUPTI a process: the one that is loaded, else the framework's own."""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forebay.errors import DeviceError

__all__ = ["open_buffers", "open_cupti"]

BUFFERS = Path(__file__).with_name("buffers.so")  # built with the wheel
NAME = "libcupti.so"


def open_buffers(path: Path = BUFFERS) -> Any:
    """The few lines of C that CUPTI calls."""
    if not path.is_file():
        raise DeviceError(
            "Forebay was installed without a C compiler, so CUPTI has nowhere to put its records: install a wheel, or "
            "install again where `cc` is."
        )
    return ctypes.CDLL(str(path))


def open_cupti() -> Any:
    """CUPTI itself."""
    tried = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"{candidate}: {error}")
    raise DeviceError(f"CUPTI was not found ({'; '.join(tried)}): pip install nvidia-cuda-cupti (or -cu12).")


def _candidates() -> Iterator[str]:
    """A loaded one first, since a second one in a process takes nothing; then that of the loaded CUDA runtime."""
    maps = Path("/proc/self/maps")
    loaded = maps.read_text() if maps.is_file() else ""
    yield from dict.fromkeys(re.findall(rf"(/\S*{re.escape(NAME)}\S*)", loaded))
    majors = ["12", "13"] if "libcudart.so.12" in loaded else ["13", "12"]
    folders = [Path(folder) / "nvidia" for folder in sys.path if (Path(folder) / "nvidia").is_dir()]
    for major in majors:
        for folder in folders:
            for place in ("cuda_cupti/lib", f"cu{major}/lib"):
                path = folder / place / f"{NAME}.{major}"
                if path.is_file():
                    yield str(path)
        yield f"{NAME}.{major}"
    yield "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"
