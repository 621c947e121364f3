"""Facts of this host: cores that may be used, memory that may be taken, what is installed."""

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
    """What a plan may count on."""

    cores: int
    memory_nbytes: int
    python: str
    system: str
    cpu: str

    @classmethod
    def here(cls) -> "Machine":
        return cls(
            cores=_usable_cores(),
            memory_nbytes=_usable_memory(),
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()}",
            cpu=_cpu_name(),
        )


def installed_versions() -> dict[str, str]:
    """Frameworks that are installed, without importing any."""
    found = {}
    for name in _FRAMEWORKS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _usable_cores() -> int:
    """Cores this process may run on, or the share a container grants it, whichever is less."""
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
