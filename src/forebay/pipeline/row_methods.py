"""The pipeline methods that order rows: shuffle, window, repeat, take and skip."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from forebay.core.source import AbstractSource
from forebay.core.spec import parse_nbytes
from forebay.errors import PipelineError
from forebay.order.choices import Selected, Span, consecutive_start
from forebay.order.combined import contains_order, has_windows
from forebay.order.epoch_views import EpochViews, find_source_row
from forebay.order.orders import BlockShuffled, Order, Repeated, Shuffled, Take, Windows, require_length
from forebay.pipeline.argument_checks import check_count, check_number, refuse_error_limit
from forebay.pipeline.choice_methods import ChoiceMethods
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.stored_columns import read_labels
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.choices import SkippedStream, TakenStream
from forebay.sources.streams.combinators import RepeatedStream, ShuffledStream
from forebay.sources.windows import find_starts_within, make_windows

__all__ = ["RowMethods"]

OPEN_BLOCKS_NBYTES = 32 << 20  # bytes of all open blocks together, if the user passes neither `mix` nor `window`
MIN_OPEN_BLOCKS, MAX_OPEN_BLOCKS = 16, 1024  # limits of the number of open blocks that follows from these bytes


@dataclass(frozen=True, slots=True)
class RowMethods(ChoiceMethods):
    """A pipeline description with methods that choose and order rows.

    Each method returns a new pipeline.
    """

    @accept_familiar_arguments
    def shuffle(
        self,
        *,
        seed: int = 0,
        block: int | Literal["auto"] | None = "auto",
        mix: int | None = None,
        window: int | str | None = None,
    ) -> Self:
        """Shuffle the rows, with a different random order in each epoch.

        The order depends only on `seed` and the epoch. A block shuffle reads data larger than RAM faster: it reads
        blocks in random order and mixes the rows of several open blocks. Rows of one block stay near each other;
        `explain()` reports the distance.

        Args:
            seed: Another seed gives another order.
            block: None is an exact shuffle: any row can appear at any position. `"auto"` is exact too, unless the
                source proposes blocks, which is so for chunked files and stored objects that do not fit in memory. A
                number such as 4096 is the number of rows of a block.
            mix: The number of open blocks of a block shuffle. By default, as many blocks are open as fit in 32 MiB, but
                at least 16 and at most 1024. If `block="auto"` chooses an exact shuffle, `mix` has no effect.
            window: Instead of `mix`, the total size of all open blocks, such as `"64MB"`. For a stream, you must pass
                it: Forebay keeps rows of this total size in memory and takes rows from them at random.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> with fb.from_arrays(np.arange(6)).shuffle(seed=0).batch(6).feed("numpy") as feed:
            ...     orders = [batch.tolist() for epoch in range(2) for batch in feed]
            >>> sorted(orders[0]) == sorted(orders[1]) == list(range(6)), orders[0] == orders[1]
            (True, False)
        """
        if self.batching is not None:
            raise PipelineError("shuffle() works on rows: call it before batch().")
        seed = check_number(seed, "shuffle(seed={})")
        mix = None if mix is None else check_count(mix, "shuffle(mix={})")
        if isinstance(self.source, BatchStream):
            raise PipelineError("ready-made batches cannot be shuffled here. Shuffle in the loader that makes them.")
        if self.order is None:
            has_blocks = block not in (None, "auto") or mix is not None
            return self._shuffle_stream(seed, window, has_blocks=has_blocks)
        if window is not None:
            mix = self._blocks_in_window(window, block, mix)
        if block is None and mix is not None:
            raise PipelineError(
                f"shuffle(mix={mix}) is for block shuffles, but shuffle(block=None) is exact. Leave out mix=, or write "
                f"shuffle(block=4096, mix={mix})."
            )
        if block == "auto":
            block, mix = self._propose_blocks(self.order, mix)
        if block is None:
            return replace(self, order=Shuffled(self.order, seed), seed=seed)
        block = check_count(block, "shuffle(block={})")
        order = BlockShuffled(self.order, seed, block, mix or self._default_open_blocks(block))
        return replace(self, order=order, seed=seed)

    @accept_familiar_arguments
    def window(self, length: int, *, stride: int = 1, horizon: int = 0, within: Any = None) -> Self:
        """Make one row of every window of `length + horizon` consecutive rows of a series.

        A window begins at every `stride`-th row. In the loop, split a batch into inputs and targets:
        `batch[:, :length]` and `batch[:, length:]`. To predict the next token, split the batch into `batch[:, :-1]` and
        `batch[:, 1:]`. Windows of arrays and of mapped files share the memory of the series, on the host and on a GPU.
        Call `window()` before `shuffle()` and `map()`. You may call `split(..., seed=None)` before `window()`.

        Args:
            length: The number of rows of a window, without the horizon.
            stride: The distance between the first rows of two windows.
            horizon: The number of rows to predict, at the end of each window.
            within: The name of a field, such as `"episode"`, or an array with one label per row. Forebay makes only
                windows whose rows all have the same value or label.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> pipeline = fb.from_arrays(np.arange(10)).window(3, stride=2, horizon=1).batch(2)
            >>> next(pipeline.feed("numpy")).tolist()
            [[0, 1, 2, 3], [2, 3, 4, 5]]
        """
        length, stride = check_count(length, "window({})"), check_count(stride, "window(stride={})")
        horizon = check_number(horizon, "window(horizon={})")
        if horizon < 0:
            raise PipelineError(f"window(horizon={horizon}): pass 0 or more rows to predict.")
        rows, length = self._consecutive_rows(), length + horizon
        stride = min(stride, rows.stop - rows.start)  # with any larger stride, there is also a single window
        assert isinstance(self.source, AbstractSource)
        refuse_error_limit(self.source, "window")
        if within is None:
            source = make_windows(self.source, rows, length, stride)
            return replace(
                self, source=source, order=Windows(len(source), first=rows.start, stride=stride), file_recipe=None
            )
        labels, pipeline = read_labels(self, within, "window(within=...)")
        starts = find_starts_within(labels, length, stride)
        source = make_windows(self.source, rows, length, 1)
        order = Selected.of_positions(Windows(len(source), first=rows.start), starts)
        return replace(pipeline, source=source, order=order, file_recipe=None)

    def _consecutive_rows(self) -> slice:
        """Return the consecutive rows that the order has, or raise PipelineError for any other order."""
        if self.order is None:
            raise PipelineError("window() needs rows that can be read by index, not a stream. Use arrays or files.")
        first = consecutive_start(self.order)
        if contains_order(self.order, (EpochViews,)):
            raise PipelineError(
                "window() makes one row of consecutive rows, but from_images() crops each image at another random box. "
                "Open the images with size= instead of resize=fb.random_resized_crop(...)."
            )
        if first is None or has_windows(self.order) or self.batching is not None or self.transforms:
            raise PipelineError(
                "window() needs consecutive rows of the source. Call it after from_arrays() or from_files(), and call "
                "shuffle(), map() or batch() after it."
            )
        return slice(first, first + require_length(self.order, "window"))

    @accept_familiar_arguments
    def repeat(self, count: int | None = None) -> Self:
        """Repeat all rows (before `batch()`) or all batches (after it) in each epoch.

        Args:
            count: How many times an epoch has each row or batch. Without `count`, the epoch never ends.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> rows = fb.from_arrays(np.arange(3))
            >>> [batch.tolist() for batch in rows.repeat(2).batch(4).feed("numpy")]
            [[0, 1, 2, 0], [1, 2]]
        """
        count = None if count is None else check_count(count, "repeat({})")
        if self.batching is not None or isinstance(self.source, BatchStream):
            if self.batch_limit is not None:
                raise PipelineError("repeat() after take() on batches is not supported: call take() last.")
            return replace(self, passes=None if count is None or self.passes is None else self.passes * count)
        if self.order is None:
            return replace(self, source=RepeatedStream(self._stream, count))
        return replace(self, order=Repeated(self.order, count))

    @accept_familiar_arguments
    def take(self, count: int) -> Self:
        """Keep only the first rows (before `batch()`) or batches (after it) of each epoch.

        Args:
            count: The number of rows or batches.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> rows = fb.from_arrays(np.arange(10))
            >>> [batch.tolist() for batch in rows.batch(2).take(2).feed("numpy")]
            [[0, 1], [2, 3]]
        """
        count = check_count(count, "take({})")
        if self.batching is not None or isinstance(self.source, BatchStream):
            return replace(self, batch_limit=min(count, self.batch_limit or count))
        if self.order is None:
            return replace(self, source=TakenStream(self._stream, count))
        return replace(self, order=Take(self.order, count))

    @accept_familiar_arguments
    def skip(self, count: int) -> Self:
        """Leave out the first rows of each epoch.

        Args:
            count: The number of rows to leave out.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> next(fb.from_arrays(np.arange(10)).skip(7).batch(4).feed("numpy")).tolist()
            [7, 8, 9]
        """
        count = check_number(count, "skip({})")
        if count < 0:
            raise PipelineError(f"skip({count}): pass a whole number of at least 0.")
        self._refuse_batches("skip")
        if count == 0:
            return self
        if self.order is None:
            return replace(self, source=SkippedStream(self._stream, count))
        if self.order.length is not None and count >= self.order.length:
            raise PipelineError(f"skip({count}) leaves none of {self.order.length} rows. Skip fewer rows.")
        return replace(self, order=Span(self.order, count))

    def _propose_blocks(self, order: Order, mix: int | None) -> tuple[int | None, int | None]:
        """Return the rows per block and the number of open blocks, for `block="auto"`.

        The first number is None, for an exact shuffle, if the source proposes no blocks or the order does not ascend.
        If the order leaves out rows, a block has fewer rows than the source proposes. So a block spans as many chunks
        of the file as without a selection. `mix` is the user's number of open blocks, if there is one.
        """
        assert isinstance(self.source, AbstractSource)
        blocks = self.source.shuffle_blocks
        if blocks is None or not order.is_ascending or order.length is None:
            return None, mix
        ends = order.rows(0, np.array([0, order.length - 1])).tolist()
        first, last = (find_source_row(order, row) for row in ends)
        block_rows = blocks.rows * order.length // (last - first + 1)
        return max(1, min(blocks.rows, block_rows)), mix or blocks.max_open_blocks

    def _shuffle_stream(self, seed: int, window: int | str | None, *, has_blocks: bool) -> Self:
        if has_blocks or window is None:
            raise PipelineError(
                "a stream cannot be indexed. Give the size of the window in which rows are mixed, as in "
                "shuffle(seed=0, window='64MB'), and leave out block= and mix=."
            )
        return replace(self, source=ShuffledStream(self._stream, seed, parse_nbytes(window, "window")), seed=seed)

    def _blocks_in_window(self, window: int | str, block: int | str | None, mix: int | None) -> int:
        """Return how many blocks fit in a window of this size, at least 1."""
        if block in (None, "auto") or mix is not None:
            raise PipelineError(
                "shuffle(window=...) is for streams, and for block shuffles without mix=. For all rows of this source "
                "in random order, write shuffle(seed=0). For a block shuffle, write "
                "shuffle(block=4096, window='64MB')."
            )
        return max(1, parse_nbytes(window, "window") // self._block_nbytes(check_count(block, "shuffle(block={})")))

    def _default_open_blocks(self, block: int) -> int:
        return max(MIN_OPEN_BLOCKS, min(MAX_OPEN_BLOCKS, OPEN_BLOCKS_NBYTES // self._block_nbytes(block)))

    def _block_nbytes(self, block: int) -> int:
        specs, _ = (
            self.source.stored_rows
        )  # not the specs after cached maps, so that `cache()` does not change the order
        return max(1, block * sum(spec.nbytes for spec in specs))
