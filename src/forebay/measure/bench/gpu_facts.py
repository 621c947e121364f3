"""Which GPU is measured, and the versions of what is only measured on one. No context is made to find out."""

import ctypes
from importlib.metadata import PackageNotFoundError, version

__all__ = ["gpu_facts", "peer_versions"]

_PEERS = (
    "cuda-bindings",
    "cuda-core",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "spdl-core",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)


def gpu_facts() -> dict[str, str]:
    """The first GPU's name and the CUDA version of its driver; nothing where there is no GPU."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, name, number = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int()
    failed = (
        library.cuInit(0)
        or library.cuDeviceGet(ctypes.byref(device), 0)
        or library.cuDeviceGetName(name, len(name), device)
        or library.cuDriverGetVersion(ctypes.byref(number))
    )
    if failed:
        return {}
    return {"gpu": name.value.decode(), "cuda": f"{number.value // 1000}.{number.value % 1000 // 10}"}


def peer_versions() -> dict[str, str]:
    """Those that are installed."""
    found = ((name, _version(name)) for name in _PEERS)
    return {name: told for name, told in found if told is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
