"""What a feed reports about itself: `stats()`, `explain()`, and regular reports to callbacks."""

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from forebay.core.launchers import detect_process_rank
from forebay.core.recorder import Received, Recorder, RecorderGroup, describe_received
from forebay.errors import PipelineError
from forebay.pipeline.explain import explain, explain_in_card, summarise
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan

__all__ = ["FeedReports", "RegularReports", "StatsCallback", "describe_shard"]

StatsCallback = Callable[[dict[str, Any]], Any]
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

_log = logging.getLogger(__name__)


class FeedReports:
    """The methods of a feed that report its plan and its measurements."""

    _pipeline: Pipeline
    _plan: Plan
    _recorder: Recorder
    _reports: "RegularReports"

    def stats(self) -> dict[str, Any]:
        """Return statistics of this feed: batches, rows, bytes, errors, waiting times and the slowest stage."""
        counters = self._pipeline.source.counters()
        numbers = summarise(self._plan, self._recorder.capture()) | describe_shard(self._pipeline)
        return numbers | ({"source": counters} if counters else {})

    def explain(self) -> str:
        """Return a text with the plan, the reason of each decision, and measurements so far.

        A REPL and a notebook show the lines of this text without `print`.
        """
        return explain(self._plan, self._capture())

    def _repr_html_(self) -> str:
        return explain_in_card(self._plan, self._capture())

    def _capture(self) -> dict[str, Any]:
        """Return the measurements of the recorder, with the decisions of the source."""
        capture = self._recorder.capture()
        decisions = self._pipeline.source.decisions()
        capture["notes"] |= {decision.name: [decision.choice, decision.why] for decision in decisions}
        return capture

    @property
    def received(self) -> Received:
        """What the consumer received so far, with a histogram of its waits."""
        return self._recorder.received()

    def on_stats(self, callback: StatsCallback, *, every: int | str = "10s") -> Callable[[], None]:
        """Call a function with the statistics regularly, and return a function that ends the calls.

        The thread of the training loop makes the calls when it takes a group of batches from the feed, and in
        `close()`. If the callback raises an exception, the feed logs a warning and continues.

        Args:
            callback: A function of one argument, the dict of `stats()`. The value `"interval"` in this dict has the
                numbers since the previous call.
            every: A number of batches, or a time such as `"10s"`, `"500ms"` or `"2min"`.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> with fb.from_arrays(np.arange(6)).batch(2).feed("numpy") as feed:
            ...     stop = feed.on_stats(lambda stats: print(stats["rows"], "rows"), every=3)
            ...     batches = list(feed)
            6 rows
        """
        return self._reports.add(callback, every, self._recorder)


def describe_shard(pipeline: Pipeline) -> dict[str, int]:
    """Return the rank of this process and the number of shards.

    If the pipeline is not sharded, the rank is the one that a launcher reports: the user may have divided the data
    among the ranks before.
    """
    rank = pipeline.shard_index if pipeline.shard_count > 1 else detect_process_rank()
    return {"rank": rank or 0, "shards": pipeline.shard_count}


class RegularReports:
    """The callbacks of `on_stats`."""

    def __init__(self) -> None:
        self.active: list[_Report] = []
        self._lock = threading.Lock()

    def add(self, callback: StatsCallback, every: int | str, recorder: Recorder | RecorderGroup) -> Callable[[], None]:
        """Add a callback, and return a function that removes it."""
        if not callable(callback):
            raise PipelineError(f"on_stats({callback!r}): pass a function that takes a dict.")
        report = _Report(callback, recorder, *_parse_interval(every))
        self.active.append(report)
        return lambda: self.active.remove(report) if report in self.active else None

    def run_due(self, read_stats: Callable[[], dict[str, Any]], *, at_end: bool = False) -> None:
        """Call all callbacks that are due.

        With `at_end`, call the callbacks that have not yet seen the last batches.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread calls the callbacks now, or a callback itself takes a batch from the feed
        try:
            for report in tuple(self.active):
                if report.has_news if at_end else report.is_due:
                    report.run(read_stats)
        finally:
            self._lock.release()


class _Report:
    """One callback, and when it is due."""

    def __init__(
        self, callback: StatsCallback, recorder: Recorder | RecorderGroup, batches: int | None, seconds: float
    ) -> None:
        self._callback, self._recorder, self._batches, self._seconds = callback, recorder, batches, seconds
        self._previous: Received = recorder.received()
        self._previous_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        if self._batches is not None:
            return self._recorder.batches - self._previous.batches >= self._batches
        return time.monotonic() - self._previous_at >= self._seconds

    @property
    def has_news(self) -> bool:
        return self._recorder.batches > self._previous.batches

    def run(self, read_stats: Callable[[], dict[str, Any]]) -> None:
        now, received = time.monotonic(), self._recorder.received()
        seconds, since = now - self._previous_at, received.since(self._previous)
        self._previous, self._previous_at = received, now
        interval = {"seconds": seconds, "rows_per_second": since.rows / seconds if seconds else None}
        try:
            self._callback(read_stats() | {"interval": describe_received(since) | interval})
        except Exception:
            _log.warning(
                "the callback %r of on_stats() raised an error. The feed continues. Correct the callback.",
                self._callback,
                exc_info=True,
            )


def _parse_interval(every: Any) -> tuple[int | None, float]:
    """Return the interval as a number of batches and infinity, or as None and seconds."""
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return every, math.inf
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h)", every.strip()) if isinstance(every, str) else None
    if match is None or float(match[1]) == 0:
        raise PipelineError(
            f"on_stats(every={every!r}) is neither a number of batches nor a time. Pass a number from 1 on, or a text "
            "such as '10s', '500ms' or '2min'."
        )
    return None, float(match[1]) * _UNITS[match[2]]
