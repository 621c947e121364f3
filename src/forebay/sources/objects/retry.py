"""Trying again: a bounded number of times, after a pause that doubles and is drawn at random."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from forebay.errors import SourceError
from forebay.sources.objects.store_errors import blame, cause_of

__all__ = ["Retry", "Traffic"]

Result = TypeVar("Result")

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 8.0


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


class Retry:
    """Makes a request until it succeeds, fails for good, or has been made `attempts` times."""

    def __init__(self, attempts: int, traffic: Traffic) -> None:
        self.attempts = attempts
        self._traffic = traffic
        self._stopped = threading.Event()

    def __call__(self, request: Callable[[], Result], *, attempts: int | None = None) -> Result:
        allowed = attempts or self.attempts
        for attempt in range(1, allowed):
            try:
                return self._counted(request)
            except Exception as error:
                if isinstance(error, SourceError) or not blame(error).passing:
                    raise
                self._traffic.retried(cause_of(error))
            self._pause(attempt)
        return self._counted(request)

    def stop(self) -> None:
        """Let nobody pause any longer; what fails from now on fails at once."""
        self._stopped.set()
        self.attempts = 1

    def _counted(self, request: Callable[[], Result]) -> Result:
        self._traffic.add(requests=1)
        return request()

    def _pause(self, attempt: int) -> None:
        """Drawn at random, so that a thousand readers turned away together do not come back together."""
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (attempt - 1))
        self._stopped.wait(random.uniform(longest / 2, longest))
