"""`BatchContext`: the position of a batch, which seeds random numbers, and its skipped rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay.core.rows import Rows
from forebay.core.skipped_rows import SkippedRow

__all__ = ["BatchContext", "collect_skipped"]


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The position and row ids of a batch, which seed random numbers; its skipped rows."""

    epoch: int
    passes: int  # complete passes in this epoch
    position: int  # of the first row, in the order of all shards
    # One number per row, which no other row of the pass has: the row number in the source. For a stream, or if a row
    # may occur several times, it is the position in the order of all shards.
    row_ids: Rows
    transform: int = 0  # index of the transform in the pipeline
    skipped: list[SkippedRow] = field(default_factory=list)  # maps append the rows for which they failed

    @classmethod
    def of_sample(cls, rows: int) -> "BatchContext":
        """Return the context of sample rows, with which Forebay infers specs."""
        return cls(0, 0, 0, slice(0, rows))

    def for_transform(self, index: int) -> "BatchContext":
        """Return the context for the transform with this index. Both share `skipped`."""
        if index == self.transform:
            return self
        return BatchContext(self.epoch, self.passes, self.position, self.row_ids, index, self.skipped)

    @property
    def batch_numbers(self) -> tuple[int, ...]:
        """The numbers that seed a generator for the whole batch."""
        return self.epoch, self.passes, self.position, self.transform


def collect_skipped(contexts: Sequence[BatchContext], batch_rows: int) -> list[SkippedRow]:
    """Return the skipped rows of consecutive batches.

    Their `row` is counted from the first row of the first batch.
    """
    return [row.shifted(batch * batch_rows) for batch, context in enumerate(contexts) for row in context.skipped]
