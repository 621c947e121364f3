"""The statistics of feeds for TensorBoard, Weights & Biases, Prometheus and other loggers.

>>> feed.on_stats(to_tensorboard(SummaryWriter("runs/1")), every="10s")  # doctest: +SKIP
>>> feed.on_stats(to_wandb(wandb.init()), every=100)  # doctest: +SKIP
>>> prometheus_client.REGISTRY.register(FeedCollector(train=feed))  # doctest: +SKIP
"""

import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from forebay.core.recorder import Received
from forebay.errors import FrameworkError, PipelineError
from forebay.feed.reports import StatsCallback

__all__ = ["FeedCollector", "MonitoredFeed", "ScalarWriter", "scalars", "to_tensorboard", "to_wandb"]

_TOTALS = ("rows", "errors")
_OF_INTERVAL = ("rows_per_second", "wait_p50_seconds", "wait_p95_seconds", "wait_p99_seconds", "wait_max_seconds")
# Name of a Prometheus counter: its attribute of `Received` and its help text.
_COUNTERS = {
    "forebay_batches": ("batches", "Batches that the training loop received."),
    "forebay_rows": ("rows", "Rows that the training loop received."),
    "forebay_bytes": ("nbytes", "Bytes of the rows that the training loop received."),
    "forebay_errors": ("errors", "Errors that the training loop got in place of a batch."),
    "forebay_wait_seconds": ("wait_seconds", "Time in which no batch was ready for the training loop."),
}


@runtime_checkable
class ScalarWriter(Protocol):
    """The summary writers of PyTorch and tensorboardX."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class MonitoredFeed(Protocol):
    """A feed for a framework or for Keras."""

    @property
    def received(self) -> Received: ...
    def stats(self) -> dict[str, Any]: ...


def scalars(stats: dict[str, Any], prefix: str = "feed") -> dict[str, float]:
    """Return the numbers of a report of `on_stats` with their names, for any logger.

    Speed and waits are those since the previous report; rows and errors are totals. With several shards, the names
    contain the rank.

    >>> interval = {"seconds": 2.0, "rows_per_second": 8.0, "wait_seconds": 0.5, "wait_p99_seconds": 0.25}
    >>> scalars({"rows": 16, "errors": 0, "rank": 0, "shards": 1, "interval": interval})["feed/wait_share"]
    0.25
    """
    interval = stats["interval"]
    prefix = f"{prefix}/rank{stats['rank']}" if stats["shards"] > 1 else prefix
    numbers = {name: stats[name] for name in _TOTALS} | {name: interval.get(name) for name in _OF_INTERVAL}
    if interval["seconds"]:
        numbers["wait_share"] = interval["wait_seconds"] / interval["seconds"]
    return {f"{prefix}/{name}": float(number) for name, number in numbers.items() if number is not None}


def to_tensorboard(writer: Any, *, prefix: str = "feed") -> StatsCallback:
    """Return a callback for `on_stats` that writes scalars for TensorBoard.

    The step is the number of batches. `writer` is a SummaryWriter of PyTorch or tensorboardX, or a writer of
    `tf.summary.create_file_writer`.
    """
    if isinstance(writer, ScalarWriter):
        write: Callable[..., Any] = writer.add_scalar
    elif hasattr(writer, "as_default"):
        write = _tensorflow_scalar(writer)
    else:
        raise PipelineError(f"to_tensorboard({writer!r}): pass a SummaryWriter, or a writer of tf.summary.")

    def callback(stats: dict[str, Any]) -> None:
        for name, number in scalars(stats, prefix).items():
            write(name, number, stats["batches"])

    return callback


def to_wandb(run: Any, *, prefix: str = "feed") -> StatsCallback:
    """Return a callback for `on_stats` that calls `run.log(numbers)`.

    A run of Weights & Biases and of some other loggers has this method. If `log` has the argument `commit`, the numbers
    belong to the step of your next call of `log`.
    """
    if not callable(getattr(run, "log", None)):
        raise PipelineError(f"to_wandb({run!r}): pass an object with the method log, such as wandb.init().")
    options = {"commit": False} if "commit" in inspect.signature(run.log).parameters else {}
    return lambda stats: run.log(scalars(stats, prefix), **options)


class FeedCollector:
    """A collector for `prometheus_client`.

    It reads the statistics of feeds when Prometheus requests the metrics.

    Register one collector for all feeds of a process: `REGISTRY.register(FeedCollector(train=feed, valid=other))`. The
    metrics have the labels `feed` and `rank`. The collector does not keep the feeds alive.
    """

    def __init__(self, **feeds: MonitoredFeed) -> None:
        try:
            from prometheus_client import core
        except ModuleNotFoundError as error:
            raise FrameworkError(
                "FeedCollector needs prometheus_client, which is missing. Run: pip install 'forebay[prometheus]'.",
                name="prometheus_client",
            ) from error
        if not feeds:
            raise PipelineError("FeedCollector() has no feed. Pass feeds with their names: FeedCollector(train=feed).")
        self._families, self._feeds = core, {name: weakref.ref(feed) for name, feed in feeds.items()}

    def describe(self) -> list[Any]:
        """Return no metric, so that a registration does not read the feeds."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield all metrics."""
        feeds = {name: feed for name, reference in self._feeds.items() if (feed := reference()) is not None}
        read = {(name, str(feed.stats()["rank"])): feed.received for name, feed in feeds.items()}
        labels = ("feed", "rank")
        for name, (attribute, text) in _COUNTERS.items():
            family = self._families.CounterMetricFamily(name, text, labels=labels)
            for values, received in read.items():
                family.add_metric(values, getattr(received, attribute))
            yield family
        text = "Time that the training loop waited for a batch."
        family = self._families.HistogramMetricFamily("forebay_batch_wait_seconds", text, labels=labels)
        for values, received in read.items():
            buckets = [(str(seconds), count) for seconds, count in received.waits.cumulative()]
            family.add_metric(values, [*buckets, ("+Inf", received.waits.batches)], received.waits.seconds)
        yield family


def _tensorflow_scalar(writer: Any) -> Callable[..., Any]:
    import tensorflow as tf

    try:
        import tensorboard  # noqa: F401 - tf.summary.scalar imports it
    except ModuleNotFoundError as error:
        raise FrameworkError(
            "the scalars of tf.summary need tensorboard, which is not installed. Run: pip install tensorboard.",
            name="tensorboard",
        ) from error

    def write(name: str, number: float, step: int) -> None:
        with tf.init_scope(), writer.as_default():
            tf.summary.scalar(name, number, step=step)

    return write
