"""`EpochCache`: the tables that an order computes once per epoch."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["CACHED_EPOCHS", "EpochCache"]

CACHED_EPOCHS = 2  # the current epoch and the next one

T = TypeVar("T")


class EpochCache(Generic[T]):
    """Keeps the tables of the last `CACHED_EPOCHS` epochs.

    The first thread that needs a table computes it. All threads that need a new table wait meanwhile.
    """

    def __init__(self) -> None:
        self._epochs: OrderedDict[int, T] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: int, compute: Callable[[], T]) -> T:
        """Return the tables of the epoch that `key` identifies, and compute them if necessary."""
        found = self._epochs.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._epochs.get(key)
            if found is None:
                while len(self._epochs) >= CACHED_EPOCHS:  # frees memory before the new tables need it
                    self._epochs.popitem(last=False)
                found = self._epochs[key] = compute()
            return found

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochCache, ()  # a lock cannot be pickled, and another process computes its own tables
