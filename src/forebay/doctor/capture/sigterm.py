"""SIGTERM as Ctrl-C is: an exception, so that whoever ends a script early still hears what was seen of it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

__all__ = ["Terminated", "terminable"]


class Terminated(BaseException):
    """No error, and nothing that `except Exception` should catch."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise, the first time; left alone where somebody else handles it, as the script itself may."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _care_for_children()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        _restore()


def _terminate(number: int, frame: FrameType | None) -> None:
    _restore()  # whoever sends it again means it
    raise Terminated


def _restore() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@cache  # once: it cannot be taken back
def _care_for_children() -> None:
    """A forked child that is told to end does so as ever: the signal waits until our handler is forgotten there."""
    held: list[set[int]] = []  # what the thread that forks had blocked before

    def hold() -> None:
        held.append({*signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.pop())

    def release_child() -> None:
        _restore()
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=release_child)
