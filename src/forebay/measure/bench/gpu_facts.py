"""Name and versions of the GPU under test, found without a CUDA context."""

import ctypes
from importlib.metadata import PackageNotFoundError, version

__all__ = ["gpu_facts", "gpu_package_versions"]

_GPU_PACKAGES = (
    "cuda-bindings",
    "cuda-core",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "spdl-core",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)


def gpu_facts() -> dict[str, str]:
    """Return the first GPU's name and its driver's CUDA version, or nothing without a GPU."""
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


def gpu_package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that only GPU cases use."""
    versions = ((name, _version(name)) for name in _GPU_PACKAGES)
    return {name: found for name, found in versions if found is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
