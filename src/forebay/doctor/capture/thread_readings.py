"""Readings about the loop's thread and the other threads of the process.

A tool such as a debugger, a coverage tool or a profiler runs for every line or function of the script. It uses
`sys.settrace`, `sys.setprofile` or `sys.monitoring`. If the doctor hooked these functions, its hooks would appear in
the records of the tool. So the doctor only reads which tools are set on the loop's thread when the profiled steps end.

On a CPU, JAX computes in its own threads. Their CPU time shows whether they may limit a step.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns
from typing import NamedTuple

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import EventKind

__all__ = ["OtherThreadsClock", "RunnableClock", "active_tools", "record_tools"]

_OWN_HOOKS = ("cProfile", "_lsprof")  # modules of profilers whose calls are recorded by `hooks.python`
_MONITORS = (0, 1)  # ids of debuggers and of coverage tools in `sys.monitoring`
_THREAD_FILE = Path("/proc/thread-self/schedstat")  # Linux: CPU time and wait for a core of a thread, in nanoseconds
INTERVAL_NS = 10_000_000  # least time between two readings; a reading takes about 1 us
MAX_READINGS = 2000  # per run; these readings cover at least 20 seconds


def record_tools(ledger: Ledger, start: int) -> None:
    """Record each active tool as a setting that is on since `start` (ns)."""
    for setting in sorted(active_tools()):
        ledger.append((EventKind.SETTING, setting.value, -1), start, perf_counter_ns())


def active_tools() -> frozenset[DebugSetting]:
    """Return the tools that trace or profile the current thread."""
    profile = sys.getprofile()
    tools = {DebugSetting.TRACE} if sys.gettrace() is not None or _has_monitor() else set()
    if profile is not None and type(profile).__module__ not in _OWN_HOOKS:
        tools.add(DebugSetting.PROFILE)
    return frozenset(tools)


def _has_monitor() -> bool:
    """Whether a debugger or a coverage tool uses `sys.monitoring`, which Python has since 3.12."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) is not None for number in _MONITORS)


class _Reading(NamedTuple):
    time: int  # nanoseconds on the clock of the events
    thread: int
    process_seconds: float  # CPU time of all threads
    thread_seconds: float  # CPU time of `thread`


class OtherThreadsClock:
    """Reads the CPU time of the process and of the thread that calls `read`."""

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._next_time = 0

    def read(self, now: int) -> None:
        """Add a reading at the time `now` (ns), unless the last reading is recent."""
        if now < self._next_time or len(self._readings) >= MAX_READINGS:
            return
        self._next_time = now + INTERVAL_NS
        self._readings.append(_Reading(now, get_ident(), time.process_time(), time.thread_time()))

    def other_cores(self, start: int, end: int) -> float | None:
        """Return how many cores the other threads kept busy from `start` to `end`.

        `start` and `end` are nanoseconds. The loop runs in the thread with the most readings in this time. Return None
        if this thread has fewer than two readings.
        """
        inside = [reading for reading in self._readings if start <= reading.time <= end]
        threads = [reading.thread for reading in inside]
        loop_thread = max(threads, key=threads.count, default=0)
        of_loop = [reading for reading in inside if reading.thread == loop_thread]
        if len(of_loop) < 2:
            return None
        first, last = of_loop[0], of_loop[-1]
        process, thread = last.process_seconds - first.process_seconds, last.thread_seconds - first.thread_seconds
        return max(0.0, process - thread) * 1e9 / (last.time - first.time)


class RunnableClock:
    """Reads how long the calling thread has run or waited for a core.

    Time in which the thread slept or waited for data does not count. Linux counts the wait for a core in a file for
    each thread. On other systems, only the CPU time counts.
    """

    def __init__(self) -> None:
        self._files = threading.local()  # `file` of each thread

    def read(self) -> int:
        """Return the nanoseconds in which the thread ran or waited for a core so far.

        A reading takes about 2 us.
        """
        return time.thread_time_ns() + self._waited_ns()

    def _waited_ns(self) -> int:
        file: _ThreadFile | None = getattr(self._files, "file", None)
        if file is None:
            file = self._files.file = _ThreadFile(_THREAD_FILE)
        return file.waited_ns()


class _ThreadFile:
    """The open `schedstat` file of a thread. It closes when the thread ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1  # stays -1 if the system has no such file
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY)

    def waited_ns(self) -> int:
        """Return how long the thread has waited for a core, in nanoseconds; 0 if unknown."""
        try:
            return int(os.pread(self._descriptor, 100, 0).split()[1]) if self._descriptor >= 0 else 0
        except (IndexError, OSError, ValueError):
            return 0

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
