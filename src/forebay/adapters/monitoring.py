"""Send the statistics of feeds to TensorBoard, Weights & Biases, Prometheus and other loggers."""

import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from forebay.core.recorder import Received
from forebay.errors import FrameworkError, PipelineError
from forebay.feed.reports import StatsCallback

__all__ = ["FeedCollector", "MonitoredFeed", "ScalarWriter", "scalars", "to_tensorboard", "to_wandb"]

_TOTAL_KEYS = ("rows", "errors")
_INTERVAL_KEYS = ("rows_per_second", "wait_p50_seconds", "wait_p95_seconds", "wait_p99_seconds", "wait_max_seconds")
# Name of a Prometheus counter: the attribute of `Received` that it exports, and its help text.
_COUNTERS = {
    "forebay_batches": ("batches", "Batches that the training loop received."),
    "forebay_rows": ("rows", "Rows that the training loop received."),
    "forebay_bytes": ("nbytes", "Bytes of the rows that the training loop received."),
    "forebay_errors": ("errors", "Errors that the training loop got in place of a batch."),
    "forebay_wait_seconds": ("wait_seconds", "Time in which no batch was ready for the training loop."),
}


@runtime_checkable
class ScalarWriter(Protocol):
    """The method that the summary writers of PyTorch and tensorboardX have in common."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class MonitoredFeed(Protocol):
    """What `FeedCollector` reads from a feed, a Keras feed or a loader."""

    @property
    def received(self) -> Received: ...
    def stats(self) -> dict[str, Any]: ...


def scalars(stats: dict[str, Any], prefix: str = "feed") -> dict[str, float]:
    """Return the numbers of an `on_stats` report by name, for any logger.

    Rows and errors are totals since the feed was made. All other numbers cover the time since the previous report. With
    several shards, each name contains the rank.

    Args:
        stats: The dict that `on_stats` passes to a callback.
        prefix: The first part of each name.

    Examples:
        >>> interval = {"seconds": 2.0, "rows_per_second": 8.0, "wait_seconds": 0.5, "wait_p99_seconds": 0.25}
        >>> scalars({"rows": 16, "errors": 0, "rank": 0, "shards": 1, "interval": interval})["feed/wait_share"]
        0.25
    """
    interval = stats["interval"]
    prefix = f"{prefix}/rank{stats['rank']}" if stats["shards"] > 1 else prefix
    numbers = {name: stats[name] for name in _TOTAL_KEYS} | {name: interval.get(name) for name in _INTERVAL_KEYS}
    if interval["seconds"]:
        numbers["wait_share"] = interval["wait_seconds"] / interval["seconds"]
    return {f"{prefix}/{name}": float(number) for name, number in numbers.items() if number is not None}


def to_tensorboard(writer: Any, *, prefix: str = "feed") -> StatsCallback:
    """Return a callback for `on_stats` that writes scalars for TensorBoard.

    The step of each scalar is the number of batches that the training loop has received.

    Args:
        writer: A SummaryWriter of PyTorch or tensorboardX, or a writer of `tf.summary.create_file_writer`.
        prefix: The first part of the name of each scalar.

    Examples:
        >>> import tempfile, numpy as np, forebay as fb
        >>> from tensorboardX import SummaryWriter
        >>> with (
        ...     tempfile.TemporaryDirectory() as folder,
        ...     SummaryWriter(folder) as writer,
        ...     fb.from_arrays(np.arange(8)).batch(4).feed("numpy") as feed,
        ... ):
        ...     end = feed.on_stats(to_tensorboard(writer), every="10s")
        ...     rows = sum(len(batch) for batch in feed)
        >>> rows
        8
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

    Runs of Weights & Biases and of some other loggers have a method `log`. If `log` has an argument `commit`, the
    callback passes `commit=False`. So the logger adds the numbers to the step of your next call of `log`.

    Args:
        run: An object with the method `log`, such as `wandb.init()`.
        prefix: The first part of the name of each number.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> class Run:  # stands for the run of wandb.init()
        ...     def log(self, numbers):
        ...         print(numbers["feed/rows"])
        >>> with fb.from_arrays(np.arange(8)).batch(4).feed("numpy") as feed:
        ...     end = feed.on_stats(to_wandb(Run()), every=1)
        ...     rows = sum(len(batch) for batch in feed)
        4.0
        8.0
    """
    if not callable(getattr(run, "log", None)):
        raise PipelineError(f"to_wandb({run!r}): pass an object with the method log, such as wandb.init().")
    options = {"commit": False} if "commit" in inspect.signature(run.log).parameters else {}
    return lambda stats: run.log(scalars(stats, prefix), **options)


class FeedCollector:
    """A collector for `prometheus_client`.

    It reads the statistics of feeds when Prometheus requests the metrics.

    Register one collector for all feeds of a process, because two collectors would export metrics with equal names:
    `REGISTRY.register(FeedCollector(train=train_feed, valid=valid_feed))`. The metrics have the labels `feed` and
    `rank`. The collector holds weak references, so it does not keep feeds alive.

    Args:
        **feeds: The feeds. The name of each argument becomes the value of the label `feed`.

    Examples:
        >>> import numpy as np, forebay as fb, prometheus_client
        >>> feed = fb.from_arrays(np.arange(8)).batch(4).feed("numpy")
        >>> registry = prometheus_client.CollectorRegistry()
        >>> registry.register(FeedCollector(train=feed))
        >>> batches = [batch.copy() for batch in feed]
        >>> registry.get_sample_value("forebay_rows_total", {"feed": "train", "rank": "0"})
        8
        >>> feed.close()
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
        """Return an empty list, so that `register` does not read the feeds."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of all feeds that still exist."""
        feeds = {name: feed for name, reference in self._feeds.items() if (feed := reference()) is not None}
        received_by_labels = {(name, str(feed.stats()["rank"])): feed.received for name, feed in feeds.items()}
        labels = ("feed", "rank")
        for name, (attribute, text) in _COUNTERS.items():
            family = self._families.CounterMetricFamily(name, text, labels=labels)
            for values, received in received_by_labels.items():
                family.add_metric(values, getattr(received, attribute))
            yield family
        text = "Time that the training loop waited for a batch."
        family = self._families.HistogramMetricFamily("forebay_batch_wait_seconds", text, labels=labels)
        for values, received in received_by_labels.items():
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
