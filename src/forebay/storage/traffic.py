"""What went over the wire and what did not have to: counters for `stats()` and `explain()`."""

import threading
from collections import Counter

__all__ = ["Traffic"]


class Traffic:
    """Counts of one source; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def retried(self, cause: str) -> None:
        """An attempt that failed and is made again."""
        with self._lock:
            self._counts["retries"] += 1
            self._causes[cause] += 1

    def counts(self) -> dict[str, int]:
        """Requests, retries, bytes fetched, and bytes of blocks that were in a tier already."""
        with self._lock:
            names = ("requests", "retries", "fetched_nbytes", "cached_nbytes")
            return {name: self._counts[name] for name in names}

    def causes(self) -> dict[str, int]:
        """Why attempts were made again, the most frequent first."""
        with self._lock:
            return dict(self._causes.most_common())
