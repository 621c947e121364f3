"""The dataset and the samplers of a loader, which trainers use to rebuild it.

A trainer that resumes makes a new DataLoader from the dataset of the loader, with a batch sampler that leaves out the
first batches. So the batch sampler of this module numbers the batches of an epoch, and the dataset returns the batch
that has a given number.
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

    A position is a place in the order of the rows of all ranks.
    """

    __slots__ = ("_schedule", "epoch", "number")

    def __init__(self, epoch: int, number: int, schedule: Schedule) -> None:
        self.epoch, self.number, self._schedule = epoch, number, schedule

    @property
    def positions(self) -> Sequence[int]:
        """The positions of the rows. Without a shuffle, they are the row numbers."""
        cursor = cursor_of_batch(self._schedule, self.epoch, self.number)
        rows = self._schedule.positions(next(self._schedule.groups(cursor, 1)))
        return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.positions[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.positions)  # `Sequence` would compute all positions again for each index

    def __len__(self) -> int:
        return len(self.positions)


class FeedDataset(Dataset):  # type: ignore[misc]  # torch is untyped here
    """The dataset of a loader.

    It returns whole batches, but its length is the number of rows.
    """

    def __init__(self, loader_feed: LoaderFeed) -> None:
        self.loader_feed = loader_feed

    def __len__(self) -> int:
        """Return the number of rows that all ranks together get in an epoch."""
        schedule = self.loader_feed.pipeline.schedule
        if schedule.batches is None or not self.loader_feed.pipeline.indexed:
            raise TypeError(
                "this dataset has no length: its source is a stream, or it repeats without end. Count the batches in "
                "the loop instead."
            )
        rows = schedule.pass_rows * (schedule.passes or 1)
        limit = schedule.batch_limit
        return rows if limit is None else min(rows, limit * schedule.batch_rows * schedule.shard_count)

    def __getitems__(self, batch: Any) -> Tree:
        """Return the batch for an element of `FeedBatchSampler`; raise FeedError for other indices."""
        if not isinstance(batch, BatchRows):
            refuse_row(batch)
        return self.loader_feed.batch_at(batch.epoch, batch.number)

    def __getitem__(self, index: Any) -> NoReturn:
        refuse_row(index)


class FeedSampler(DistributedSampler):  # type: ignore[misc]  # torch is untyped here
    """Yields the positions of the rows of this rank.

    Trainers divide the rows among the ranks unless the sampler is a `DistributedSampler`. The feed has divided them
    already.
    """

    def __init__(self, dataset: FeedDataset) -> None:
        # Do not call the constructor of the base class: it asks torch.distributed for a rank, which is not ready yet.
        self.dataset = dataset
        self.shuffle, self.seed, self.drop_last = False, 0, False  # no shuffle here, because the pipeline shuffles

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
    """Yields the batches of the next epoch as `BatchRows`.

    No rows are read for batches that a trainer skips. A trainer that needs the same rows in every epoch makes this
    object again with a sequential sampler. Then the batches of every epoch are those of epoch 0.
    """

    def __init__(self, sampler: Any, batch_size: int | None, drop_last: bool) -> None:
        # Do not call the constructor of the base class: it refuses the batch size None, which ready-made batches have.
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
    """Raise FeedError, because a trainer or a script requests a single row."""
    raise FeedError(
        "feed('loader') is already a DataLoader. It and its dataset return whole batches, in the order of the "
        f"pipeline, so they have no rows by index, but got [{reprlib.repr(index)}]. Iterate the loader itself, or give "
        "the loader to the trainer. With transformers, use the Trainer of forebay.adapters.transformers, which takes "
        "loaders."
    )


def return_batch(batch: Tree) -> Tree:
    """Return a batch as it is: the `collate_fn` of a loader with whole batches."""
    return batch


def _batches_of_epoch(loader_feed: LoaderFeed, epoch: int) -> Iterator[BatchRows]:
    """Yield all batches of an epoch, without reading them.

    For a stream of unknown length, the iterator ends after the dataset has found the end of the stream.
    """
    pipeline = loader_feed.pipeline
    batches = pipeline.epoch_batches
    loader_feed.begin_batches()
    for number in itertools.count() if batches is None else range(batches):
        if not loader_feed.has_batch(epoch, number):
            return
        yield BatchRows(epoch, number, pipeline.schedule)
