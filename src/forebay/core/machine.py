"""Facts about this host: usable cores and memory, CPU, operating system, installed packages."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Machine", "installed_versions"]

_PACKAGES = (
    "numpy",
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "torch",
    "jax",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "ray",
    "grain",
    "pillow",
    "simplejpeg",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and memory that this process may use; Python, operating system and CPU."""

    cores: int
    memory_nbytes: int
    python: str  # version of Python
    system: str  # name and release of the operating system
    cpu: str  # model name

    @classmethod
    def detect(cls) -> "Machine":
        """Return the facts of this host, within the CPU affinity and the container's limits."""
        return cls(
            cores=_usable_cores(),
            memory_nbytes=_usable_memory(),
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()}",
            cpu=_cpu_name(),
        )


def installed_versions() -> dict[str, str]:
    """Return {package: version} for the installed ones of `_PACKAGES`, without importing them."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _usable_cores() -> int:
    """Return the number of cores that the CPU affinity and the container's CPU quota allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_file("/sys/fs/cgroup/cpu.max").split()  # CPU time and period, both in microseconds
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, max(1, round(int(quota[0]) / int(quota[1]))))
    return cores


def _usable_memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
    limit = _read_file("/sys/fs/cgroup/memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _cpu_name() -> str:
    for line in _read_file("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read_file(path: str) -> str:
    """Return the text of a file, or an empty string if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
