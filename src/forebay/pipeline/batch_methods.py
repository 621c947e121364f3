"""The pipeline method `batch`, which combines rows into batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from forebay.core.progress_line import ProgressLine
from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.length_buckets import BucketedBatches, LengthBuckets, can_bucket
from forebay.order.orders import BlockShuffled, Order, Shuffled, require_length
from forebay.pipeline.argument_checks import check_count
from forebay.pipeline.description import Batching
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.row_lengths import find_lengths
from forebay.pipeline.row_methods import RowMethods
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.padding import RaggedFields

__all__ = ["BatchMethods"]


@dataclass(frozen=True, slots=True)
class BatchMethods(RowMethods):
    """A pipeline description with the method `batch`, which returns a new pipeline."""

    @accept_familiar_arguments
    def batch(
        self,
        rows: int | None = None,
        *,
        drop_remainder: bool = False,
        pad: Mapping[str, Any] | Any | None = None,
        ragged: bool | str | Sequence[str] = False,
        tokens: int | None = None,
        buckets: Sequence[int] | None = None,
        lengths: Any = None,
        sparse: bool = False,
    ) -> Self:
        """Combine rows into batches of `rows` rows, or of at most `tokens` elements.

        With `tokens=8192`, batches have rows of similar length. The number of rows of a batch varies: this number,
        multiplied by the length of the longest row, is at most 8192. Rows of similar length form a bucket, and each
        batch has rows of one bucket. After `shuffle()`, both the rows of a bucket and the batches come in a different
        order in each epoch.

        Args:
            rows: The number of rows of a batch. Pass `rows` or `tokens`.
            drop_remainder: True leaves out an incomplete last batch; with `tokens`, the incomplete last batch of each
                bucket.
            pad: With `pad=0`, rows may differ in shape: Forebay extends every row with zeros to the longest row of its
                batch. To pad fields with different values, pass a dict of field names and values.
            ragged: With True, rows may differ in the length of their first dimension, and batches contain no padding.
                Each field whose length varies arrives as `fb.Ragged` (values and offsets), in PyTorch as a jagged
                nested tensor, in TensorFlow as a `tf.RaggedTensor`. After `from_source()`, `from_generator()` and
                `map()` on rows, Forebay does not know which lengths vary, so all fields except scalars are ragged. To
                make only some fields ragged, pass a name or a list of names.
            tokens: Upper limit of the elements of a batch, including padding.
            buckets: With `tokens`, the largest length of each bucket, such as `[64, 128, 256]`. By default, Forebay
                chooses the buckets.
            lengths: With `tokens`, the length of each row as an array, in the order before `shuffle()`; or the name of
                the field whose length is the length of a row. By default, `batch()` reads the lengths of all rows, and
                the longest field of a row decides.
            sparse: With True, rows of CSR matrices become sparse tensors of the framework.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> texts = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]
            >>> next(fb.from_source(texts).batch(3, pad=0).feed("numpy")).tolist()
            [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
            >>> batch = next(fb.from_source(texts).batch(3, ragged=True).feed("numpy"))
            >>> batch.values.tolist(), batch.offsets.tolist()
            ([1, 2, 3, 4, 5, 6], [0, 3, 4, 6])
            >>> [batch.shape for batch in fb.from_source(texts).batch(tokens=4, pad=0, buckets=[2, 4]).feed("numpy")]
            [(1, 3), (2, 2)]
        """
        if isinstance(self.source, BatchStream):
            raise PipelineError("from_batches() yields ready-made batches. Leave batch() out.")
        if self.batching is not None:
            first = self.batching.rows if self.batching.tokens is None else f"tokens={self.batching.tokens}"
            raise PipelineError(f"batch({first}) was called already: call batch() once.")
        fields = _ragged_fields(ragged, pad)
        if sparse and (fields is not None or tokens is not None):
            raise PipelineError("batch(sparse=True) needs rows of one length. Leave out ragged= and tokens=.")
        if tokens is not None:
            if rows is not None:
                raise PipelineError(f"batch({rows!r}, tokens={tokens!r}): pass one of the two.")
            return self._batch_by_length(Batching(1, drop_remainder, pad, tokens, fields), buckets, lengths)
        if buckets is not None or lengths is not None:
            raise PipelineError("buckets= and lengths= are for batch(tokens=...). Leave them out, or pass tokens=.")
        if rows is None:
            raise PipelineError("batch(None): pass a whole number of rows, such as batch(64), or batch(tokens=8192).")
        rows = check_count(rows, "batch({})")
        self._check_batch_rows(rows, drop_remainder)
        return replace(self, batching=Batching(rows, drop_remainder, pad, ragged=fields, sparse=sparse))

    def _batch_by_length(self, batching: Batching, bounds: Sequence[int] | None, lengths: Any) -> Self:
        """Return the pipeline with batches of rows of similar length.

        `bounds` is the argument `buckets` of `batch()`.
        """
        tokens = check_count(batching.tokens, "batch(tokens={})")
        if batching.pad is None and batching.ragged is None:
            raise PipelineError(
                f"batch(tokens={tokens}) combines rows of different length. Choose a value to pad them with, as in "
                f"batch(tokens={tokens}, pad=0), or pass ragged=True."
            )
        order = self._order_to_bucket()
        inner = order.inner if isinstance(order, Shuffled | BlockShuffled) else order
        bounds = _check_bounds(bounds)
        found, pipeline = find_lengths(self, inner, lengths)
        _refuse_long_rows(found, tokens, bounds)
        with ProgressLine(f"batch(tokens=...) sorts {len(found):,} rows by length"):
            table = LengthBuckets.of(found, tokens, bounds=bounds, drop_remainder=batching.drop_remainder)
        if table.batches == 0:
            raise PipelineError(
                f"batch(tokens={tokens}, drop_remainder=True) would drop all of {len(found)} rows, because no bucket "
                "fills a batch. Use fewer tokens, or keep the remainder."
            )
        batching = replace(batching, rows=table.max_batch_rows, tokens=tokens)
        return replace(pipeline, order=BucketedBatches.of(order, table), batching=batching)

    def _order_to_bucket(self) -> Order:
        """Return the order if its rows can form buckets, else raise PipelineError.

        The order must be fixed, or a shuffle of a fixed order.
        """
        if self.order is None:
            raise PipelineError(
                "batch(tokens=...) needs rows that can be indexed, but a stream is read in sequence. Use batch(n), or "
                "store the rows in arrays or files."
            )
        require_length(self.order, "batch")
        if not can_bucket(self.order):
            raise PipelineError(
                "batch(tokens=...) needs the same rows in every epoch, shuffled at most once, but sample(), take(), "
                "skip(), repeat() or a function such as concat() comes after shuffle(). Call shuffle() last, before "
                "batch()."
            )
        return self.order

    def _check_batch_rows(self, rows: int, drop_remainder: bool) -> None:
        length = self.order.length if self.order is not None else None
        if length is not None and drop_remainder and length // self.shard_count < rows:
            raise PipelineError(
                f"batch({rows}, drop_remainder=True) would drop all of {length // self.shard_count} rows. "
                "Choose a smaller batch, or keep the remainder."
            )


def _check_bounds(bounds: Any) -> list[int] | None:
    """Return the argument `buckets` of `batch()` as a list of ints, or None.

    Raise PipelineError unless the numbers are at least 1 and increase.
    """
    if bounds is None:
        return None
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or not bounds:
        raise PipelineError(f"batch(buckets={bounds!r}): pass a list of lengths, such as [64, 128, 256].")
    checked = [check_count(bound, "batch(buckets=[{}])") for bound in bounds]
    if any(bound >= following for bound, following in pairwise(checked)):
        raise PipelineError(f"batch(buckets={bounds!r}): the lengths must increase. Sort them.")
    return checked


def _refuse_long_rows(lengths: Array, tokens: int, bounds: Sequence[int] | None) -> None:
    """Raise PipelineError if there is no row, or if a row is too long.

    A row is too long if it has more than `tokens` elements, or more than the last bucket allows. `bounds` has the
    largest length of each bucket.
    """
    if not len(lengths):
        raise PipelineError("batch(tokens=...) got no rows. Pass a source with at least one row.")
    row = int(lengths.argmax())
    if lengths[row] > tokens:
        raise PipelineError(
            f"row {row} has the length {lengths[row]}, more than batch(tokens={tokens}). Pass more tokens, shorten the "
            "row in the source, or leave it out with select()."
        )
    if bounds is not None and lengths[row] > bounds[-1]:
        raise PipelineError(
            f"row {row} has the length {lengths[row]}, more than the last of buckets={list(bounds)}. Add a bucket for "
            "it, or leave the row out with select()."
        )


def _ragged_fields(ragged: bool | str | Sequence[str], pad: Any) -> RaggedFields | None:
    """Return the ragged fields that `batch(ragged=...)` names; None if no field is ragged.

    Raise PipelineError for wrong values.
    """
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
