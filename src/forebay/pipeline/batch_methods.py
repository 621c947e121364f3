"""The pipeline method that combines rows into batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from forebay.errors import PipelineError
from forebay.pipeline.argument_checks import check_count
from forebay.pipeline.description import Batching
from forebay.pipeline.row_methods import RowMethods
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.padding import RaggedFields

__all__ = ["BatchMethods"]


@dataclass(frozen=True, slots=True)
class BatchMethods(RowMethods):
    """A pipeline description with the method that makes batches."""

    def batch(
        self,
        rows: int,
        *,
        drop_remainder: bool = False,
        pad: Mapping[str, Any] | Any | None = None,
        ragged: bool | str | Sequence[str] = False,
    ) -> Self:
        """Combine `rows` rows into a batch.

        `drop_remainder=True` leaves out an incomplete last batch. With `pad=0`, rows may differ in shape: Forebay
        extends every row with zeros to the longest row of its batch. Pass a dict for a different value per field.

        With `ragged=True`, rows may differ in their first length, and batches contain no padding. Each field whose
        length varies arrives as `fb.Ragged` (values and offsets), in PyTorch as a jagged nested tensor, in TensorFlow
        as a `tf.RaggedTensor`. If the specs of the source do not say which lengths vary, as after `from_source()`,
        `from_generator()` and `map()` on rows, all fields with a dimension are ragged. Pass names to choose the fields.

        >>> import numpy as np, forebay as fb
        >>> texts = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]
        >>> next(fb.from_source(texts).batch(3, pad=0).feed("numpy")).tolist()
        [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
        >>> batch = next(fb.from_source(texts).batch(3, ragged=True).feed("numpy"))
        >>> batch.values.tolist(), batch.offsets.tolist()
        ([1, 2, 3, 4, 5, 6], [0, 3, 4, 6])
        """
        if isinstance(self.source, BatchStream):
            raise PipelineError("from_batches() yields ready-made batches. Leave batch() out.")
        if self.batching is not None:
            raise PipelineError(f"batch({self.batching.rows}) was called already: call batch() once.")
        rows = check_count(rows, "batch({})")
        self._check_batch_rows(rows, drop_remainder)
        return replace(self, batching=Batching(rows, drop_remainder, pad, _ragged_fields(ragged, pad)))

    def _check_batch_rows(self, rows: int, drop_remainder: bool) -> None:
        length = self.order.length if self.order is not None else None
        if length is not None and drop_remainder and length // self.shard_count < rows:
            raise PipelineError(
                f"batch({rows}, drop_remainder=True) would drop all of {length // self.shard_count} rows. "
                "Choose a smaller batch, or keep the remainder."
            )


def _ragged_fields(ragged: bool | str | Sequence[str], pad: Any) -> RaggedFields | None:
    """Return the fields of `batch(ragged=...)`, or None. Raise PipelineError for wrong values."""
    if ragged is False:
        return None
    if pad is not None:
        raise PipelineError(f"batch(pad={pad!r}, ragged={ragged!r}): ragged rows have no padding. Pass one of the two.")
    if ragged is True:
        return RaggedFields(None)
    names = (ragged,) if isinstance(ragged, str) else ragged
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise PipelineError(f"batch(ragged={ragged!r}): pass True, the name of a field, or a list of names.")
    return RaggedFields(frozenset(names))
