"""Signal handling: SIGTERM raises an exception, and a failed script leaves no handlers."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

__all__ = [
    "SigtermReceived",
    "ignore_first_sigterm",
    "is_sigterm_pending",
    "raise_on_sigterm",
    "repeat_unhandled_sigterm",
    "restore_handlers_on_failure",
]

# A second SIGTERM within this time is the same signal: the command `timeout` sends it to a process and to its group.
_DUPLICATE_SECONDS = 0.1
_received = threading.Event()  # set if SIGTERM has raised `SigtermReceived`, or is about to
_handling = threading.RLock()  # held by a thread that sets `_received` or repeats SIGTERM


class SigtermReceived(BaseException):
    """The process received SIGTERM. Like KeyboardInterrupt, it is not an `Exception`."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise `SigtermReceived` at the first SIGTERM, so that the doctor can still report.

    Does nothing outside of the main thread, or if the process already handles or ignores SIGTERM.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _restore_default_in_children()
    _received.clear()
    signal.signal(signal.SIGTERM, _handle_sigterm)
    try:
        yield
    finally:
        _restore_default()


@contextmanager
def ignore_first_sigterm() -> Iterator[None]:
    """Do not let the first SIGTERM end the block, which writes the report. The second one ends the process.

    Does nothing outside of the main thread, or if the process already handles or ignores SIGTERM.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_sigterm_pending() -> bool:
    """Whether a SIGTERM that has arrived raises or has raised `SigtermReceived`.

    False if the script handles SIGTERM itself.
    """
    return _received.is_set() or signal.getsignal(signal.SIGTERM) is _handle_sigterm


def repeat_unhandled_sigterm() -> None:
    """Send SIGTERM to the main thread again if its handler has not run yet.

    A signal that arrives just before a system call such as `sleep` does not interrupt this call, and Python runs the
    handler only after the call. A repeated signal interrupts the call.
    """
    with _handling:
        if not _received.is_set() and is_sigterm_pending():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _handle_sigterm(number: int, frame: FrameType | None) -> None:
    with _handling:
        if _received.is_set():  # a repeated signal
            return
        _received.set()
        time.sleep(_DUPLICATE_SECONDS)
        _restore_default()  # so that a second SIGTERM ends the process
    raise SigtermReceived


def _restore_default() -> None:
    """Restore the default action of SIGTERM, unless the script has set another handler."""
    if signal.getsignal(signal.SIGTERM) is _handle_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@cache  # runs once in a process, because a fork callback cannot be removed
def _restore_default_in_children() -> None:
    """Restore the default action of SIGTERM in forked children.

    SIGTERM stays blocked during the fork until the child has restored the default.
    """
    blocked: list[set[int]] = []  # per fork in progress: signals that the forking thread had blocked before

    def block() -> None:
        blocked.append({*signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked.pop())

    def unblock_in_child() -> None:
        _restore_default()
        unblock()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=unblock_in_child)


@contextmanager
def restore_handlers_on_failure() -> Iterator[None]:
    """Restore all signal handlers if the block raises. Does nothing outside of the main thread.

    If the block does not raise, threads of the script may still need the handlers that the script installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    except BaseException:
        try:
            _restore_handlers(before)
        except Exception:  # raised by a handler of the script during the restoration
            _restore_handlers(before)
        raise


def _restore_handlers(before: dict[Any, Any]) -> None:
    for number, handler in before.items():
        current = signal.getsignal(number)
        # None: a handler that was installed outside Python, and that Python cannot restore.
        if current is not handler and None not in (current, handler):
            signal.signal(number, handler)
