"""`KeyChecks`: when a row cache checks that its key still describes its functions and data."""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from forebay.core.spec import Array
from forebay.sources.row_cache.stored_rows import StoredRows

__all__ = ["CheckedKey", "KeyChecks"]

# A check whether the user's functions have changed may read large arrays. After a check that takes longer than
# CHEAP_CHECK_SECONDS, the next check waits. Checks then take at most MAX_CHECK_SHARE of the time.
CHEAP_CHECK_SECONDS, MAX_CHECK_SHARE = 2e-3, 0.05


class CheckedKey(Protocol):
    """The cache key. It can compare functions and data, which may change after `cache()`."""

    def check_data(self) -> None:
        """Raise PipelineError if the data have changed."""

    def check_functions(self) -> None:
        """Raise PipelineError if a function has changed."""


class KeyChecks:
    """Checks the key of one cache. Several threads may call the methods at the same time."""

    def __init__(self, key: CheckedKey, store: StoredRows) -> None:
        self.key, self._store = key, store
        self._has_checked_data = False
        self._next_function_check = 0.0  # on the clock of time.monotonic
        self._pending_rows = 0  # new rows that threads are storing now
        self._data_lock, self._pending_lock = threading.Lock(), threading.Lock()

    def check_data(self) -> None:
        """Check once, before this process computes rows, that the data match the key."""
        if self._has_checked_data:
            return
        with self._data_lock:
            if not self._has_checked_data:
                self.key.check_data()
                self._has_checked_data = True

    def put(self, numbers: Array, leaves: Sequence[Array], unreadable: Array) -> None:
        """Store rows. Sometimes check first that no function has changed since `cache()`.

        `unreadable` has the numbers of the rows that the inner source could not read so far.
        """
        if (new_rows := self._store.count_new(numbers)) == 0:
            return
        unreadable_rows = self._store.count_new(unreadable)
        try:
            with self._pending_lock:
                self._pending_rows += new_rows
                # Count the rows that other threads are storing now. Without these rows, two threads that store the last
                # rows at the same time would both skip the check.
                stored_rows = self._pending_rows + self._store.count
            self._check_functions(is_last=stored_rows + unreadable_rows >= self._store.capacity)
            self._store.put(numbers, leaves)
        finally:
            with self._pending_lock:
                self._pending_rows -= new_rows

    def _check_functions(self, *, is_last: bool) -> None:
        """Check the functions if enough time has passed, or if these are the last rows that the cache will store."""
        started_at = time.monotonic()
        if is_last or started_at >= self._next_function_check:
            self.key.check_functions()
            if (seconds := time.monotonic() - started_at) > CHEAP_CHECK_SECONDS:
                self._next_function_check = started_at + seconds / MAX_CHECK_SHARE
