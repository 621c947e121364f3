"""Threads that outlive the script: Python waits for them, and so does the watch as long as it sees anything of them."""

import threading
from collections.abc import Callable
from concurrent.futures import thread as pools
from time import monotonic

__all__ = ["await_threads"]

SILENT_SECONDS = 2.0  # after which a thread is left to itself: Python waits for it, once the report is out
LOOK_SECONDS = 0.05


def await_threads(seen: Callable[[], int], is_over: Callable[[], bool]) -> str:
    """Until all have ended, nothing more is to be seen of them, or somebody interrupts; in words."""
    try:
        _await(seen, is_over)
    except KeyboardInterrupt:
        return "interrupted"
    return "done"


def _await(seen: Callable[[], int], is_over: Callable[[], bool]) -> None:
    before, silent_since = seen(), monotonic()
    while threads := _outliving():
        threads[0].join(LOOK_SECONDS)
        if seen() != before:
            before, silent_since = seen(), monotonic()
        if is_over() or monotonic() - silent_since > SILENT_SECONDS:
            return


def _outliving() -> list[threading.Thread]:
    """Those that Python would wait for: not those of pools, which it sends home."""
    others = (threading.main_thread(), threading.current_thread(), *pools._threads_queues)
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in others]
