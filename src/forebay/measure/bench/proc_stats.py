"""How much of the host's processors a contender uses, its worker processes included."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

__all__ = ["CpuClock"]

_SESSION, _USER, _SYSTEM = 3, 11, 12  # fields of /proc/*/stat, counted from behind the name


class CpuClock:
    """Started at once; `stop()` tells how many cores were busy on average.

    A contender is the leader of a session of its own, so all it started is found by that. Children are counted in the
    kernel's ticks of 10 ms, the process itself exactly.
    """

    def __init__(self) -> None:
        self._others = _others_seconds()
        self._own, self._began = process_time(), perf_counter()

    def stop(self) -> float:
        own, wall = process_time() - self._own, perf_counter() - self._began
        return (own + max(0.0, _others_seconds() - self._others)) / wall


def _others_seconds() -> float:
    ticks = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    return sum(_session_ticks()) / ticks


def _session_ticks() -> Iterator[int]:
    own_pid, own_session = os.getpid(), os.getsid(0)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(path.parent.name) != own_pid and int(fields[_SESSION]) == own_session:
            yield int(fields[_USER]) + int(fields[_SYSTEM])
