"""Retries of requests, counters of requests, and a time limit for stalled stores."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from forebay.errors import SourceError, StoreError
from forebay.sources.objects.store_errors import StoreFault, classify, describe_cause

__all__ = ["RequestCounters", "Retry", "wait_for_result"]

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.1  # longest pause after the first attempt; it doubles after each further attempt
_MAX_PAUSE_SECONDS = 8.0  # longest pause after any attempt
# Forebay gives up after this many seconds in which no attempt ends. Without this limit, it could wait forever: a server
# that sends single bytes exceeds no read timeout, and the packages of some stores have no timeouts. With the default of
# 16 connections, a link needs 1.8 Mbit/s to read 16 blocks of 8 MiB in this time, and 3.6 Mbit/s for downloads in
# ranges of 16 MiB. On a slower link, use fewer connections.
_STALL_SECONDS = 600.0


class RequestCounters:
    """Counts the requests, retries and bytes of one source. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._progress_time = time.monotonic()

    def note_progress(self) -> None:
        """Record progress, which restarts the time limit for stalled stores.

        Progress means that an attempt ended, a part of a copy was verified, or a thread waits for another process.
        """
        self._progress_time = time.monotonic()

    def seconds_since_progress(self) -> float:
        """Return the seconds since `note_progress` was called."""
        return time.monotonic() - self._progress_time

    def add(self, **counts: int) -> None:
        """Add each value to the counter of this name."""
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
    """Sends a request until it succeeds, fails permanently or has no attempt left.

    Between two attempts, it waits. The longest pause doubles after each attempt.
    """

    def __init__(self, attempts: int, counters: RequestCounters) -> None:
        self.attempts = attempts
        self._counters = counters
        self._stopped = threading.Event()

    def __call__(self, request: Callable[[], Result], *, unreachable_attempts: int | None = None) -> Result:
        """Send a request and return its result.

        Raise the error if attempt number `unreachable_attempts`, counted from 1, cannot reach the store.
        """
        for attempt in range(1, self.attempts):
            try:
                return self._send(request)
            except Exception as error:
                fault = classify(error)
                is_last = fault is StoreFault.UNREACHABLE and attempt == unreachable_attempts
                if isinstance(error, SourceError) or not fault.is_transient or is_last:
                    raise
                self._counters.add_retry(describe_cause(error))
            if self._pause(attempt):
                break
        return self._send(request)

    def stop(self) -> None:
        """End all pauses. Requests get at most one more attempt."""
        self._stopped.set()
        self.attempts = 1

    def _send(self, request: Callable[[], Result]) -> Result:
        self._counters.add(requests=1)
        try:
            return request()
        finally:
            self._counters.note_progress()

    def _pause(self, attempt: int) -> bool:
        """Wait for a random time. Return whether `stop` was called.

        The time is random so that threads do not repeat many rejected requests at the same moment.
        """
        max_seconds = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        return self._stopped.wait(random.uniform(max_seconds / 2, max_seconds))


def wait_for_result(future: "Future[Result]", counters: RequestCounters) -> Result:
    """Return the result of a job that sends requests.

    Raise `StoreError` if no attempt of any request of the source ends for `_STALL_SECONDS`.
    """
    started = time.monotonic()
    while not future.done():
        idle_seconds = min(counters.seconds_since_progress(), time.monotonic() - started)
        if idle_seconds >= _STALL_SECONDS:
            raise StoreError(
                f"the store has completed no request for {idle_seconds:.0f} seconds. Check the network and the store, "
                "then create the pipeline again."
            )
        try:
            return future.result(_STALL_SECONDS - idle_seconds)
        except TimeoutError:
            continue
    return future.result()
