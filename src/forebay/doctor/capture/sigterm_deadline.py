"""The deadline of a script that received SIGTERM.

In plain Python, SIGTERM ends a script at once. The doctor raises an exception in the script instead, so that it can
still report. The script may swallow the exception, hang in its cleanup, or never run Python code again because a
library waits. After the deadline, a thread reports what was recorded until then, and ends the process.
"""

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from time import monotonic

from forebay.doctor.capture.signal_handlers import is_sigterm_pending, repeat_unhandled_sigterm

__all__ = ["GRACE_SECONDS", "report_at_deadline", "sigterm_deadline"]

GRACE_SECONDS = 5.0  # the script must end within this time after SIGTERM
_REPEAT_SECONDS = 0.2  # after this time, the thread sends SIGTERM again if its handler has not run
_EXIT_CODE = 2  # of the doctor, if the script was terminated
_MESSAGE = "forebay doctor: the script did not end within {:.0f} s after SIGTERM, so the doctor ends it{}.\n"
REPORT_SECONDS = 20.0  # limit of the report after the deadline; a library that hangs may block the report


class _LastReport:
    """The report after the deadline, and whether it has begun."""

    def __init__(self) -> None:
        self.report: Callable[[], None] | None = None
        self.has_begun = threading.Event()

    def run(self, seconds: float) -> None:
        """Report in a new thread, and wait for it at most `seconds`."""
        if self.report is None:
            return
        self.has_begun.set()
        done, report = threading.Event(), self.report
        _thread.start_new_thread(_report_and_set, (report, done))
        done.wait(seconds)


def _report_and_set(report: Callable[[], None], done: threading.Event) -> None:
    with suppress(Exception):
        report()
    done.set()


_last_report = _LastReport()


@contextmanager
def report_at_deadline(report: Callable[[], None]) -> Iterator[None]:
    """Call `report` if the deadline passes inside the block. After the report, the process ends."""
    _last_report.report = report
    try:
        yield
    finally:
        _last_report.report = None


@contextmanager
def sigterm_deadline(seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """End the process if the block does not end within `seconds` after SIGTERM.

    Before that, run the report that `report_at_deadline` has set. To notice SIGTERM, a thread reads a pipe: Python
    writes the number of a signal to the wakeup file descriptor as soon as it arrives, even while the main thread
    executes no Python code. This does nothing outside of the main thread, or if the descriptor is in use.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _reset_wakeup_in_children()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ended = threading.Event()
    _set_wakeup(writer)
    _thread.start_new_thread(_watch, (reader, ended, seconds))  # not in `threading.enumerate()`, which the script sees
    try:
        yield
    finally:
        ended.set()
        if _last_report.has_begun.is_set():
            threading.Event().wait()  # the thread that reports ends the process
        _clear_wakeup(writer)
        with suppress(OSError):  # the script may have closed it
            os.close(writer)  # ends the thread that reads the pipe


def _watch(reader: int, ended: threading.Event, seconds: float) -> None:
    """Read the numbers of signals from a pipe, and apply the deadline.

    If the script does not handle SIGTERM, and has not ended `seconds` after the signal, report and end the process.
    """
    with suppress(OSError):
        while number := os.read(reader, 1):
            if number[0] != signal.SIGTERM or not is_sigterm_pending():
                continue
            if not _wait_for_end(ended, seconds):
                with suppress(OSError):
                    how = "" if _last_report.report is not None else " without a report"
                    os.write(2, _MESSAGE.format(seconds, how).encode())
                _last_report.run(REPORT_SECONDS)
                os._exit(_EXIT_CODE)
        os.close(reader)


def _wait_for_end(ended: threading.Event, seconds: float) -> bool:
    deadline = monotonic() + seconds
    while not ended.wait(_REPEAT_SECONDS):
        if monotonic() >= deadline:
            return False
        repeat_unhandled_sigterm()
    return True


_writers: set[int] = set()  # wakeup descriptors that this module has set


def _set_wakeup(writer: int) -> None:
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if previous != -1:  # in use, for example by an event loop around the doctor
        signal.set_wakeup_fd(previous)
        return
    _writers.add(writer)


def _clear_wakeup(writer: int) -> None:
    """Unset the wakeup descriptor, unless the script has set another one since."""
    if writer not in _writers:
        return
    _writers.discard(writer)
    current = signal.set_wakeup_fd(-1)
    if current not in (-1, writer):
        signal.set_wakeup_fd(current)


@cache  # runs once in a process, because a fork callback cannot be removed
def _reset_wakeup_in_children() -> None:
    """Keep signals of forked children out of the pipe that they share with this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: [*map(_clear_wakeup, [*_writers])])
