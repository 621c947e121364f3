"""A feed as a PyTorch `DataLoader`: `trainer.fit(model, pipeline.feed("loader"))`.

Trainers check the type of a loader, read its attributes, wrap it and rebuild it. So the loader of this module is a real
`DataLoader`. A feed makes its batches, so it starts no worker process of PyTorch, and neither collates nor shuffles.
"""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from torch.utils.data import DataLoader

from forebay.adapters.loader.batch_index import FeedBatchSampler, FeedDataset, FeedSampler, refuse_row, return_batch
from forebay.adapters.loader.loader_feed import LoaderBatches, LoaderFeed
from forebay.core.recorder import Received
from forebay.core.spec import Tree
from forebay.feed.reports import StatsCallback
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.validate import validate_pipeline

__all__ = ["FeedLoader", "open_feed_loader"]


class FeedLoader(DataLoader):  # type: ignore[misc]  # torch is untyped here
    """The batches of a pipeline as a DataLoader of PyTorch.

    `pipeline.feed("loader")` returns such a loader. Each loop over it is the next epoch. In a run with several ranks,
    each rank gets its own rows, and all ranks take the same number of steps. A state from the middle of an epoch
    resumes at the next batch, also on another number of ranks.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> loader = fb.from_arrays(np.arange(6)).batch(4).feed("loader")
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5]]
        >>> loader.close()
    """

    # Accelerate reads these attributes. So it does not wrap the loader, and saves its state.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(self, dataset: FeedDataset, *, batch_sampler: Any = None, **rebuilt: Any) -> None:
        """Make a loader of a dataset.

        A trainer that rebuilds the loader passes a batch sampler of its own. It also passes other settings, which are
        in `rebuilt`. The loader ignores these settings, because the pipeline determines them.
        """
        pipeline = dataset.loader_feed.pipeline
        rows, drops_rows = None, False
        if pipeline.batching is not None:
            rows, drops_rows = pipeline.batching.rows, pipeline.batching.drop_remainder
        sampler = FeedSampler(dataset)
        super().__init__(dataset, batch_size=rows, sampler=sampler, drop_last=drops_rows, collate_fn=return_batch)
        # DataLoader refuses a batch sampler next to a batch size, both in its constructor and in `__setattr__`.
        self.__dict__["batch_sampler"] = (
            FeedBatchSampler(sampler, rows, drops_rows) if batch_sampler is None else batch_sampler
        )
        self._loader_feed = dataset.loader_feed

    def __iter__(self) -> Iterator[Tree]:
        """Return an iterator. It starts the next epoch when the trainer requests the first batch."""
        if not isinstance(self.batch_sampler, FeedBatchSampler) or self.batch_sampler.repeats_epoch:
            batches: Iterator[Tree] = super().__iter__()
            return batches
        self._loader_feed.prefetch()
        return LoaderBatches(self._loader_feed)

    def __len__(self) -> int:
        """Return the number of batches in a complete epoch of this rank."""
        return len(self.batch_sampler)

    def __bool__(self) -> bool:
        return True  # without this, bool() would call `__len__`, which fails for a stream of unknown length

    def __getitem__(self, index: Any) -> NoReturn:
        refuse_row(index)  # a trainer uses the loader as a dataset

    # Methods of a feed

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last received batch, as a dict that JSON can store."""
        return self._loader_feed.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iterator start at the position of a state from `state_dict`."""
        self._loader_feed.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator start this epoch. An iterator in use continues.

        If a loaded state is in the middle of this epoch, keep its position.
        """
        self._loader_feed.set_epoch(epoch)

    def stats(self) -> dict[str, Any]:
        """Return statistics, as `Feed.stats` does.

        Before the first use, they lack the plan and the stages.
        """
        return self._loader_feed.stats()

    @property
    def received(self) -> Received:
        """What the consumer received so far, with a histogram of its waits."""
        return self._loader_feed.recorder.received()

    def on_stats(self, callback: StatsCallback, *, every: int | str = "10s") -> Callable[[], None]:
        """Call a function with the statistics regularly, and return a function that ends the calls.

        `Feed.on_stats` describes the arguments.
        """
        return self._loader_feed.reports.add(callback, every, self._loader_feed.recorder)

    def explain(self) -> str:
        return self._loader_feed.explain()

    def close(self) -> None:
        """End all threads and free the memory. Batches that you still hold stay valid."""
        self._loader_feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the pipeline and the position to another process, which builds its own feed."""
        loader_feed = self._loader_feed
        state = loader_feed.state_dict() if loader_feed.has_position else None
        return _open_at, (loader_feed.pipeline, loader_feed.options, state)

    def __repr__(self) -> str:
        return f"FeedLoader({self._loader_feed})"

    def _repr_html_(self) -> str:
        return self._loader_feed.card()


def open_feed_loader(
    pipeline: Pipeline,
    *,
    device: Any = FeedOptions.device,
    resident: str = FeedOptions.resident,
    host_bytes: int | str = FeedOptions.host_bytes,
    device_bytes: int | str | None = FeedOptions.device_bytes,
) -> FeedLoader:
    """Return the loader of `pipeline.feed("loader")`."""
    validate_pipeline(pipeline, resident)
    return _open_at(pipeline, FeedOptions("torch", device, resident, host_bytes, device_bytes), None)


def _open_at(pipeline: Pipeline, options: FeedOptions, state: dict[str, Any] | None) -> FeedLoader:
    loader = FeedLoader(FeedDataset(LoaderFeed(pipeline, options)))
    if state is not None:
        loader.load_state_dict(state)
    return loader
