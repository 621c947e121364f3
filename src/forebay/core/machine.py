"""Facts about this host: usable cores, usable memory, installed frameworks."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Machine", "installed_versions"]

_FRAMEWORKS = (
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
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and memory that this process may use, and the names of CPU and system."""

    cores: int
    memory_nbytes: int
    python: str
    system: str
    cpu: str

    @classmethod
    def detect(cls) -> "Machine":
        """Read the facts of this host, within the limits of its container."""
        return cls(
            cores=_usable_cores(),
            memory_nbytes=_usable_memory(),
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()}",
            cpu=_cpu_name(),
        )


def installed_versions() -> dict[str, str]:
    """Return the versions of installed frameworks without importing them."""
    found = {}
    for name in _FRAMEWORKS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _usable_cores() -> int:
    """Return the smaller of the CPU affinity and the CPU quota of the container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        allowed = min(allowed, max(1, round(int(quota[0]) / int(quota[1]))))
    return allowed


def _usable_memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _cpu_name() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
