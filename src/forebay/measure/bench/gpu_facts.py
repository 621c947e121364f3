"""The name of the GPU, and the versions of CUDA and of GPU packages.

No function of this module creates a CUDA context.
"""

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
    """Return the first GPU's name and its driver's CUDA version; empty without a GPU."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, name, cuda_version = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int()
    failed = (
        library.cuInit(0)
        or library.cuDeviceGet(ctypes.byref(device), 0)
        or library.cuDeviceGetName(name, len(name), device)
        or library.cuDriverGetVersion(ctypes.byref(cuda_version))
    )
    if failed:
        return {}
    major, minor = cuda_version.value // 1000, cuda_version.value % 1000 // 10  # 13020 means 13.2
    return {"gpu": name.value.decode(), "cuda": f"{major}.{minor}"}


def gpu_package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that only GPU cases use."""
    versions = ((name, _installed_version(name)) for name in _GPU_PACKAGES)
    return {name: installed for name, installed in versions if installed is not None}


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
