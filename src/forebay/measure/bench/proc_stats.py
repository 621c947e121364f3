"""CPU time and memory of a contender, read from /proc of Linux."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

__all__ = ["CpuClock", "available_nbytes", "used_nbytes"]

# Positions of session id, user time and system time in /proc/*/stat, counted from the field after the process name.
_SESSION, _USER, _SYSTEM = 3, 11, 12


class CpuClock:
    """Measures how many cores a contender keeps busy, from creation until `stop()`.

    A contender process leads its own session, so all other processes of that session are its children. The CPU time of
    the contender process itself is exact. The CPU time of its children is counted in kernel ticks, usually of 10 ms.
    """

    def __init__(self) -> None:
        self._children_start = _children_seconds()
        self._own_start, self._start = process_time(), perf_counter()

    def stop(self) -> float:
        """Return the average number of busy cores."""
        own, wall = process_time() - self._own_start, perf_counter() - self._start
        return (own + max(0.0, _children_seconds() - self._children_start)) / wall


def used_nbytes() -> int | None:
    """Return the bytes of RssAnon + RssShmem of this process; None if not reported.

    Mapped files do not count, because the kernel may drop their pages at any time.
    """
    fields = _memory_fields(Path("/proc/self/status"))
    return fields["RssAnon"] + fields["RssShmem"] if "RssAnon" in fields else None


def available_nbytes() -> int | None:
    """Return the machine's available memory; None if the system does not report it."""
    return _memory_fields(Path("/proc/meminfo")).get("MemAvailable")


def _children_seconds() -> float:
    """Return the CPU seconds of all child processes."""
    ticks_per_second = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    return sum(_children_ticks()) / ticks_per_second


def _children_ticks() -> Iterator[int]:
    own_pid, own_session = os.getpid(), os.getsid(0)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        if int(path.parent.name) != own_pid and int(fields[_SESSION]) == own_session:
            yield int(fields[_USER]) + int(fields[_SYSTEM])


def _memory_fields(path: Path) -> dict[str, int]:
    """Return the fields of a file that have the unit kB, in bytes."""
    if not path.exists():
        return {}
    lines = (line.split() for line in path.read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(kib) * 1024 for name, kib, _ in lines}
