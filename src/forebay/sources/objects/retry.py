"""Retries of requests, with random pauses that double each time, and request counters."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from forebay.errors import SourceError
from forebay.sources.objects.store_errors import classify, describe_cause

__all__ = ["RequestCounters", "Retry"]

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.1  # longest pause after the first attempt; it doubles after each further attempt
_MAX_PAUSE_SECONDS = 8.0  # the pause does not grow beyond this


class RequestCounters:
    """Counts the requests, retries and bytes of one source. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """Add the values to the counters of these names."""
        with self._lock:
            self._counts.update(counts)

    def add_retry(self, cause: str) -> None:
        """Count a retry. `cause` describes the failure of the attempt before."""
        with self._lock:
            self._counts["retries"] += 1
            self._causes[cause] += 1

    def counts(self) -> dict[str, int]:
        """Return requests, retries, bytes read from the store and bytes loaded from cache tiers."""
        with self._lock:
            names = ("requests", "retries", "fetched_nbytes", "cached_nbytes")
            return {name: self._counts[name] for name in names}

    def retry_causes(self) -> dict[str, int]:
        """Return the number of retries per cause, the most frequent cause first."""
        with self._lock:
            return dict(self._causes.most_common())


class Retry:
    """Sends a request until it succeeds, fails permanently or reaches the number of attempts."""

    def __init__(self, attempts: int, counters: RequestCounters) -> None:
        self.attempts = attempts
        self._counters = counters
        self._stopped = threading.Event()

    def __call__(self, request: Callable[[], Result], *, attempts: int | None = None) -> Result:
        """Send a request and return its result.

        `attempts` replaces the number of attempts for this request.
        """
        max_attempts = attempts or self.attempts
        for attempt in range(1, max_attempts):
            try:
                return self._send(request)
            except Exception as error:
                if isinstance(error, SourceError) or not classify(error).is_transient:
                    raise
                self._counters.add_retry(describe_cause(error))
            self._pause(attempt)
        return self._send(request)

    def stop(self) -> None:
        """End all pauses. New requests get one attempt, unless the caller passes `attempts`."""
        self._stopped.set()
        self.attempts = 1

    def _send(self, request: Callable[[], Result]) -> Result:
        self._counters.add(requests=1)
        return request()

    def _pause(self, attempt: int) -> None:
        """Wait for a random time, so that many rejected requests are not repeated at the same moment."""
        max_seconds = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        self._stopped.wait(random.uniform(max_seconds / 2, max_seconds))
