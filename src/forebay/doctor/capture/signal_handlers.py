"""Signal handlers around a script: SIGTERM becomes an exception, and a failed script leaves no handler."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

__all__ = ["SigtermReceived", "raise_on_sigterm", "restore_handlers_on_failure"]


class SigtermReceived(BaseException):  # like KeyboardInterrupt, it is not an error
    """Raised by SIGTERM. `except Exception` does not catch it."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise `SigtermReceived` at the first SIGTERM, so that a script ended early still gets a report.

    Does nothing if another handler is installed, for example by the script itself.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _restore_default_in_children()
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        _restore_default()


def _raise(number: int, frame: FrameType | None) -> None:
    _restore_default()  # a second SIGTERM ends the process
    raise SigtermReceived


def _restore_default() -> None:
    if signal.getsignal(signal.SIGTERM) is _raise:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@cache  # once in a process: a fork callback cannot be removed
def _restore_default_in_children() -> None:
    """Let SIGTERM end forked children as usual: it stays blocked until the child has dropped our handler."""
    blocked: list[set[int]] = []  # signals that the forking thread had blocked before

    def block() -> None:
        blocked.append({*signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked.pop())

    def unblock_in_child() -> None:
        _restore_default()
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=unblock_in_child)


@contextmanager
def restore_handlers_on_failure() -> Iterator[None]:
    """Restore all signal handlers if the block raises. Otherwise threads of the script may still need theirs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    except BaseException:
        try:
            _restore_handlers(before)
        except Exception:  # raised by a handler of the script that ran just now
            _restore_handlers(before)
        raise


def _restore_handlers(before: dict[Any, Any]) -> None:
    for number, handler in before.items():
        now = signal.getsignal(number)
        if now is not handler and None not in (now, handler):  # None: a handler that was not installed from Python
            signal.signal(number, handler)
