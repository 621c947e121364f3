"""The dataset and the samplers of a loader, which trainers use to rebuild it.

A trainer that resumes makes a new DataLoader from the dataset of the loader, and a batch sampler that leaves out the
first batches. So the batch sampler numbers the batches of an epoch, and the dataset returns the batch with a number.
"""

import itertools
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, overload

from torch.utils.data import BatchSampler, Dataset, DistributedSampler

from forebay.adapters.loader.loader_feed import LoaderFeed, cursor_of_batch
from forebay.core.spec import Tree
from forebay.errors import FeedError
from forebay.order.schedule import Schedule

__all__ = ["BatchRows", "FeedBatchSampler", "FeedDataset", "FeedSampler", "refuse_row", "return_batch"]


class BatchRows(Sequence[int]):
    """One batch of an epoch: its number, and the positions of its rows.

    The positions count the rows of all ranks.
    """

    __slots__ = ("_schedule", "epoch", "number")

    def __init__(self, epoch: int, number: int, schedule: Schedule) -> None:
        self.epoch, self.number, self._schedule = epoch, number, schedule

    @property
    def positions(self) -> Sequence[int]:
        """The positions, which are row numbers if the pipeline does not shuffle. Computed on request."""
        cursor = cursor_of_batch(self._schedule, self.epoch, self.number)
        rows = self._schedule.positions(next(self._schedule.groups(cursor, 1)))
        return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.positions[index]

    def __len__(self) -> int:
        return len(self.positions)


class FeedDataset(Dataset):  # type: ignore[misc]  # torch is untyped here
    """The rows of a pipeline, in the batches of its feed."""

    def __init__(self, loader_feed: LoaderFeed) -> None:
        self.loader_feed = loader_feed

    def __len__(self) -> int:
        """Return the number of rows of an epoch, of all ranks."""
        schedule = self.loader_feed.pipeline.schedule
        if schedule.batches is None or not self.loader_feed.pipeline.indexed:
            raise TypeError("this dataset has no length: its source is a stream, or it repeats without end.")
        rows = schedule.pass_rows * (schedule.passes or 1)
        limit = schedule.batch_limit
        return rows if limit is None else min(rows, limit * schedule.batch_rows * schedule.shard_count)

    def __getitems__(self, batch: Any) -> Tree:
        """Return the batch that an element of `FeedBatchSampler` describes."""
        if not isinstance(batch, BatchRows):
            refuse_row(batch)
        return self.loader_feed.batch_at(batch.epoch, batch.number)

    def __getitem__(self, index: Any) -> NoReturn:
        refuse_row(index)


class FeedSampler(DistributedSampler):  # type: ignore[misc]  # torch is untyped here
    """The positions of the rows of this rank.

    It is a `DistributedSampler`, so that trainers do not divide the rows among the ranks a second time.
    """

    def __init__(self, dataset: FeedDataset) -> None:
        # Do not call the constructor of the base class: it asks torch.distributed for a rank too early.
        self.dataset = dataset
        self.shuffle, self.seed, self.drop_last = False, 0, False  # the pipeline shuffles

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator of the loader start this epoch.

        If the position of the feed is already inside of this epoch, keep the position.
        """
        self.dataset.loader_feed.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        return self.dataset.loader_feed.next_epoch

    @property
    def num_replicas(self) -> int:
        return self.dataset.loader_feed.pipeline.shard_count

    @property
    def rank(self) -> int:
        return self.dataset.loader_feed.pipeline.shard_index

    @property
    def num_samples(self) -> int:
        """Number of rows of this rank in an epoch."""
        return len(range(self.rank, self.total_size, self.num_replicas))

    @property
    def total_size(self) -> int:
        return len(self.dataset)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(_batches_of_epoch(self.dataset.loader_feed, self.epoch))


class FeedBatchSampler(BatchSampler):  # type: ignore[misc]  # torch is untyped here
    """The batches of the next epoch, by number. Skipping some of them reads no rows.

    A trainer that needs the same rows in every epoch replaces the sampler by a sequential one. Then every epoch returns
    the batches of epoch 0.
    """

    def __init__(self, sampler: Any, batch_size: int | None, drop_last: bool) -> None:
        # Do not call the constructor of the base class: it refuses None, the size of ready-made batches.
        self.batch_size, self.drop_last = batch_size, drop_last
        self.repeats_epoch = not isinstance(sampler, FeedSampler)
        self.sampler: FeedSampler = FeedSampler(sampler.data_source) if self.repeats_epoch else sampler

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[BatchRows]:
        loader_feed = self.sampler.dataset.loader_feed
        return _batches_of_epoch(loader_feed, 0 if self.repeats_epoch else loader_feed.next_epoch)

    def __len__(self) -> int:
        return len(self.sampler.dataset.loader_feed.pipeline)


def refuse_row(index: Any) -> NoReturn:
    """Raise the error for a trainer that asks for a single row."""
    raise FeedError(
        "feed('loader') is already a DataLoader. It and its dataset return whole batches, in the order of the "
        f"pipeline, so they have no rows by index, but got [{reprlib.repr(index)}]. Iterate the loader itself, or give "
        "it to the trainer. With transformers, use the Trainer of forebay.adapters.transformers, which takes loaders."
    )


def return_batch(batch: Tree) -> Tree:
    """Return a batch as it is: the `collate_fn` of a loader."""
    return batch


def _batches_of_epoch(loader_feed: LoaderFeed, epoch: int) -> Iterator[BatchRows]:
    """Yield all batches of an epoch, without reading them.

    For a stream of unknown length, the iterator ends when the end of the stream was read.
    """
    pipeline = loader_feed.pipeline
    batches = pipeline.epoch_batches
    loader_feed.begin_batches()
    for number in itertools.count() if batches is None else range(batches):
        if not loader_feed.has_batch(epoch, number):
            return
        yield BatchRows(epoch, number, pipeline.schedule)
