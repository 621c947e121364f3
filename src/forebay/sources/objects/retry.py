"""Retries with random, growing pauses, and request counters."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from forebay.errors import SourceError
from forebay.sources.objects.store_errors import cause_of, classify

__all__ = ["RequestCounters", "Retry"]

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 8.0


class RequestCounters:
    """Counters of one source. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """Add to counters."""
        with self._lock:
            self._counts.update(counts)

    def add_retry(self, cause: str) -> None:
        """Count a failed attempt that is repeated."""
        with self._lock:
            self._counts["retries"] += 1
            self._causes[cause] += 1

    def counts(self) -> dict[str, int]:
        """Return requests, retries, fetched bytes, and bytes of blocks that came from a cache tier."""
        with self._lock:
            names = ("requests", "retries", "fetched_nbytes", "cached_nbytes")
            return {name: self._counts[name] for name in names}

    def retry_causes(self) -> dict[str, int]:
        """Return the causes of retries, the most frequent first."""
        with self._lock:
            return dict(self._causes.most_common())


class Retry:
    """Repeats a request until it succeeds, fails permanently, or was sent `attempts` times."""

    def __init__(self, attempts: int, counters: RequestCounters) -> None:
        self.attempts = attempts
        self._counters = counters
        self._stopped = threading.Event()

    def __call__(self, request: Callable[[], Result], *, attempts: int | None = None) -> Result:
        """Send a request and return its result."""
        allowed = attempts or self.attempts
        for attempt in range(1, allowed):
            try:
                return self._send(request)
            except Exception as error:
                if isinstance(error, SourceError) or not classify(error).is_transient:
                    raise
                self._counters.add_retry(cause_of(error))
            self._pause(attempt)
        return self._send(request)

    def stop(self) -> None:
        """End all pauses. Requests that fail from now on are not repeated."""
        self._stopped.set()
        self.attempts = 1

    def _send(self, request: Callable[[], Result]) -> Result:
        self._counters.add(requests=1)
        return request()

    def _pause(self, attempt: int) -> None:
        """Wait a random time, so that rejected readers do not retry together."""
        longest = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        self._stopped.wait(random.uniform(longest / 2, longest))
