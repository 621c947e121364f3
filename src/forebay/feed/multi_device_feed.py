"""A feed for several devices of one process.

Each device has a feed of its own, for its part of every batch. All these feeds read the same source. So a page-lock of
the source serves all devices, and each device pulls its rows over its own link. Device i of n gets the rows i, i + n,
i + 2n, ... of a batch. Shards divide rows in the same way, so a run can resume from a state on any number of devices
and shards.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from forebay.core.recorder import Received, RecorderGroup, describe_received
from forebay.core.spec import ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import PipelineError
from forebay.feed.epoch import Epoch
from forebay.feed.feed import Feed
from forebay.feed.reports import RegularReports, StatsCallback, describe_shard
from forebay.order.schedule import Cursor
from forebay.pipeline.card import Explanation
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline

__all__ = ["MultiDeviceFeed"]


class MultiDeviceFeed:
    """Batches of a pipeline on several devices; each batch is a tuple of parts.

        feed = pipeline.batch(64).feed("torch", device=("cuda:0", "cuda:1"))
        for first, second in feed:  # 32 rows each
            ...

    `feeds` has the feed of each device, for example to monitor it.
    """

    def __init__(self, pipeline: Pipeline, options: FeedOptions) -> None:
        devices = tuple(options.device)
        if not devices:
            raise PipelineError("device=() has no device. Pass one or more, such as device=('cuda:0', 'cuda:1').")
        host_nbytes = parse_nbytes(options.host_bytes, "host_bytes") // len(devices)
        parts = [_part(pipeline, devices, number) for number in range(len(devices))]
        self._pipeline, self._first_part = pipeline, parts[0]
        self._reports = RegularReports()
        with ExitStack() as stack:
            feeds = []
            for part, device in zip(parts, devices, strict=True):
                feeds.append(Feed(part, replace(options, device=device, host_bytes=host_nbytes)))
                stack.callback(feeds[-1].close)
            self.feeds = tuple(feeds)
            stack.pop_all()
        self._recorders = RecorderGroup([feed._recorder for feed in feeds])
        self._current_epoch: MultiDeviceEpoch | None = None  # the iterator of next(feed)

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """Shape and dtype of one row of each leaf of a batch."""
        return self.feeds[0].specs

    @property
    def structure(self) -> Structure:
        """How the fields of a batch are nested."""
        return self.feeds[0].structure

    @property
    def batches(self) -> int | None:
        """Number of batches in an epoch; None if endless."""
        return self.feeds[0].batches

    def __len__(self) -> int:
        return len(self.feeds[0])

    def __iter__(self) -> "MultiDeviceEpoch":
        """Start the next epoch, or this one again if none of its batches was requested."""
        self._current_epoch = None
        epochs = {feed.next_cursor.epoch for feed in self.feeds}
        if len(epochs) > 1:  # an error or KeyboardInterrupt came before all devices had a part of the first batch
            self.set_epoch(max(epochs))
        return MultiDeviceEpoch(self, [iter(feed) for feed in self.feeds])

    def __next__(self) -> tuple[Tree, ...]:
        """Return the next batch. After StopIteration or an error, start the next epoch."""
        if self._current_epoch is None or self._current_epoch.is_over:
            self._current_epoch = iter(self)
        return next(self._current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that all devices received.

        The result is a small dict for JSON. If a device could not deliver its part of a batch, the state is the
        position before this batch, so no row is lost.
        """
        return min((feed.state_dict() for feed in self.feeds), key=_position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next `iter()` begin at the position of a state.

        The state may be that of a feed for other devices or shards. Raise PipelineError if the last batch of the pass
        would then have no row for some device.
        """
        _refuse_starved_devices(
            self._first_part, len(self.feeds), Cursor.from_state(state, self._first_part.fingerprint)
        )
        for feed in self.feeds:
            feed.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` start this epoch from its beginning."""
        for feed in self.feeds:
            feed.set_epoch(epoch)

    def stats(self) -> dict[str, Any]:
        """Return what the loop received on all devices, and statistics of each device.

        The value `"devices"` has the statistics of each device, as `Feed.stats` returns them.
        """
        devices = [feed.stats() for feed in self.feeds]
        return describe_received(self.received) | describe_shard(self._pipeline) | {"devices": devices}

    @property
    def received(self) -> Received:
        """What the consumer received so far, with the sum of its waits for all devices."""
        return self._recorders.received()

    def on_stats(self, callback: StatsCallback, *, every: int | str = "10s") -> Callable[[], None]:
        """Call a function with the statistics regularly; `Feed.on_stats` describes the arguments."""
        return self._reports.add(callback, every, self._recorders)

    def explain(self) -> str:
        """Return the explanation of each device's feed."""
        texts = [feed.explain() for feed in self.feeds]
        return Explanation(
            "\n\n".join(f"device {number} of {len(texts)}:\n{text}" for number, text in enumerate(texts))
        )

    def _repr_html_(self) -> str:
        return "".join(f"<div>{feed._repr_html_()}</div>" for feed in self.feeds)

    def close(self) -> None:
        """End all threads and free the memory. Batches that you still hold stay valid."""
        self._reports.run_due(self.stats, at_end=True)
        with ExitStack() as stack:  # closes all feeds even after an error
            for feed in self.feeds:
                stack.callback(feed.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MultiDeviceFeed({', '.join(map(repr, self.feeds))})"


class MultiDeviceEpoch:
    """An iterator over one epoch of a `MultiDeviceFeed`."""

    def __init__(self, feed: MultiDeviceFeed, epochs: Sequence[Epoch]) -> None:
        self._feed, self._epochs, self.is_over = feed, epochs, False

    def __iter__(self) -> Iterator[tuple[Tree, ...]]:
        return self

    def __next__(self) -> tuple[Tree, ...]:
        if self._feed._reports.active:
            self._feed._reports.run_due(self._feed.stats)
        try:
            return tuple([next(epoch) for epoch in self._epochs])
        except StopIteration:
            self.is_over = True
            for epoch in self._epochs[1:]:  # each has the same number of batches as the first, so this call ends it
                next(epoch, None)
            raise
        except BaseException:
            self.is_over = True
            for epoch in self._epochs:  # some may be one batch ahead, so their parts would no longer fit together
                epoch.close()
            raise


def _part(pipeline: Pipeline, devices: tuple[Any, ...], number: int) -> Pipeline:
    """Return the pipeline of device `number`: a shard with a part of each batch."""
    count, batching = len(devices), pipeline.batching
    if any(str(device).lower() == "auto" for device in devices):
        raise PipelineError(f"device={devices}: 'auto' chooses one device. Name each device, such as 'cuda:0'.")
    if len({_canonical(device) for device in devices}) < count:
        raise PipelineError(f"device={devices} has a device twice. Pass each device once.")
    if not pipeline.indexed or batching is None or batching.tokens is not None:
        raise PipelineError(
            f"device={devices} can divide only batches of a fixed number of indexed rows. For streams, ready-made "
            "batches and batch(tokens=...), create one feed for each device, each with its own shard()."
        )
    if batching.rows % count:
        raise PipelineError(
            f"batches of {batching.rows} rows cannot be divided among {count} devices. Choose a multiple of {count}."
        )
    part = replace(
        pipeline,
        batching=replace(batching, rows=batching.rows // count),
        shard_index=pipeline.shard_index + number * pipeline.shard_count,
        shard_count=pipeline.shard_count * count,
    )
    _refuse_starved_devices(part, count, Cursor())
    return part


def _canonical(device: Any) -> Any:
    """Return one name for all spellings of a device, such as "cuda:1".

    For an engine, it is the id of the object.
    """
    if hasattr(device, "open_slot"):
        return id(device)
    kind, _, index = (f"cuda:{device}" if isinstance(device, int) else str(device).lower()).partition(":")
    return f"{'cuda' if kind == 'gpu' else kind}:{int(index) if index.isdecimal() else index or 0}"


def _refuse_starved_devices(part: Pipeline, count: int, cursor: Cursor) -> None:
    """Raise PipelineError if the pass's last batch has no row for some device.

    `part` is the pipeline of one device, and `count` the number of devices.
    """
    schedule = part.schedule
    starved = schedule.starved_shards(cursor.position)
    if not starved or not schedule.incomplete_step_rows(cursor):  # take() may end the epoch before the last batch
        return
    if cursor.position == 0:
        raise PipelineError(
            f"the last batch of an epoch has no row for {starved} of {count} devices. Use drop_remainder=True in "
            "batch()."
        )
    raise PipelineError(
        f"{schedule.pass_rows - cursor.position} rows remain from position {cursor.position} on, and the last batch "
        f"has no row for {starved} of {count} devices. Finish this epoch on one device, choose another batch size, or "
        "use drop_remainder=True in batch()."
    )


def _position(state: dict[str, Any]) -> tuple[int, int, int]:
    return state["epoch"], state["passes"], state["position"]
