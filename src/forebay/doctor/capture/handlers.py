"""Handlers of signals that a failed script leaves behind: they are for its own ears, and may raise in whatever runs.

PyTorch's DataLoader has one that raises whenever a worker has died, be it while the report is written.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["handlers_put_back"]


@contextmanager
def handlers_put_back() -> Iterator[None]:
    """What handled signals before, where the script fails; else its threads may go on, and want their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    except BaseException:
        try:
            _put_back(before)
        except Exception:  # of a handler that was called just now
            _put_back(before)
        raise


def _put_back(before: dict[Any, Any]) -> None:
    for number, handler in before.items():
        now = signal.getsignal(number)
        if now is not handler and None not in (now, handler):  # None: somebody's who does not write Python
            signal.signal(number, handler)
