"""`Pipeline`, the description of a feed: source, order, transforms, batches."""

import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from forebay.core import registry
from forebay.core.engine import Engine
from forebay.core.plugin_names import warn_renamed
from forebay.core.source import AbstractSource, AbstractStream
from forebay.core.spec import ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import PipelineError
from forebay.order.orders import BlockShuffled, Order, Repeated, Shuffled, Take
from forebay.order.schedule import ENDLESS, Schedule
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.ranks import Rank, detect_rank
from forebay.sources.files.recipe import FileSourceRecipe
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.combinators import RepeatedStream, ShuffledStream, TakenStream
from forebay.transforms.ops import Cast, Map, OneHot, Scale, Transform

if TYPE_CHECKING:  # the feed is in a higher layer; only its name is needed here
    from forebay.feed.feed import Feed

__all__ = ["Batching", "Pipeline"]

OPEN_BLOCKS_NBYTES = 32 << 20  # default size in bytes of all open blocks together
MIN_OPEN_BLOCKS, MAX_OPEN_BLOCKS = 16, 1024  # limits of the default number of open blocks


@dataclass(frozen=True, slots=True)
class Batching:
    """The arguments of `Pipeline.batch()`."""

    rows: int  # rows per batch
    drop_remainder: bool
    pad: Mapping[str, Any] | Any | None  # one value, or one per field; None if all rows have the same shape


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A description of rows and batches. Each method returns a new pipeline.

    A pipeline owns no thread and no buffer; `feed()` starts the work. Before `batch()`, `map`, `repeat` and `take`
    apply to rows; after it, they apply to batches.

    >>> import numpy as np, forebay as fb
    >>> pipeline = fb.from_arrays(np.arange(10)).shuffle(seed=1).batch(4)
    >>> [len(batch) for batch in pipeline.feed("numpy")]
    [4, 4, 2]
    """

    source: AbstractSource | AbstractStream | BatchStream
    order: Order | None = None  # None if the source is a stream
    transforms: tuple[Transform, ...] = ()
    batching: Batching | None = None
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1  # per epoch; None: endless
    batch_limit: int | None = None  # maximum number of batches per epoch
    seed: int = 0
    file_recipe: FileSourceRecipe | None = None  # with it, Ray workers on other machines open the files
    rank: Rank | Literal["auto"] | None = None  # "auto": `feed()` detects it; None: not sharded by rank

    @property
    def opening(self) -> FileSourceRecipe | None:
        """The old name of `file_recipe`."""
        warn_renamed("Pipeline", {"opening": "file_recipe"})
        return self.file_recipe

    def shuffle(
        self,
        *,
        seed: int = 0,
        block: int | Literal["auto"] | None = "auto",
        mix: int | None = None,
        window: int | str | None = None,
    ) -> Self:
        """Shuffle the rows, with a different random order in each epoch.

        `block=None` is an exact shuffle: any row can appear at any position. `block="auto"` is exact too, unless the
        source proposes blocks, as do chunked files and stored objects that do not fit in memory.

        A block shuffle reads data larger than RAM faster. `block=4096` reads blocks of 4096 rows in random order and
        mixes the rows of several open blocks. `mix` sets the number of open blocks, or `window="64MB"` sets their
        total size. By default, as many blocks are open as fit in 32 MiB, but at least 16 and at most 1024. Rows of one
        block stay near each other; `explain()` reports the distance. The order depends only on `seed` and the epoch.

        A stream needs a `window`: Forebay keeps a window of this size in memory and takes rows from it at random.
        """
        if self.batching is not None:
            raise PipelineError("shuffle() works on rows: call it before batch().")
        seed = _check_number(seed, "shuffle(seed={})")
        mix = None if mix is None else _check_count(mix, "shuffle(mix={})")
        if isinstance(self.source, BatchStream):
            raise PipelineError("ready-made batches cannot be shuffled here. Shuffle in the loader that makes them.")
        if self.order is None:
            return self._shuffle_stream(seed, None if block == "auto" else block, window)
        if window is not None:
            mix = self._blocks_in_window(window, block, mix)
        if block == "auto":
            assert isinstance(self.source, AbstractSource)
            blocks = self.source.shuffle_blocks if self.order.is_sequential else None
            block, mix = (blocks.rows, mix or blocks.max_open_blocks) if blocks else (None, mix)
        if block is None:
            return replace(self, order=Shuffled(self.order, seed), seed=seed)
        block = _check_count(block, "shuffle(block={})")
        order = BlockShuffled(self.order, seed, block, mix or self._default_open_blocks(block))
        return replace(self, order=order, seed=seed)

    def shard(self, index: int | Literal["auto"], count: int | None = None) -> Self:
        """Keep every `count`-th row (or ready-made batch) of the order, beginning with number `index`.

        With `shard("auto")`, `feed()` detects the rank of this process from Ray Train, torch.distributed,
        jax.distributed or TensorFlow's MultiWorkerMirroredStrategy. All ranks take the same number of steps.

        >>> import numpy as np, forebay as fb
        >>> next(fb.from_arrays(np.arange(10)).shard(1, 4).batch(3).feed("numpy")).tolist()
        [1, 5, 9]
        """
        if self.shard_count > 1 or self.rank is not None:
            current = "by rank" if self.rank is not None else f"{self.shard_index} of {self.shard_count}"
            raise PipelineError(f"the pipeline is sharded already ({current}). Call shard() once.")
        if index == "auto" and count is None:
            return replace(self, rank="auto")
        if isinstance(index, str) or count is None:
            raise PipelineError(f"shard({index!r}, {count!r}): use shard(index, count), or shard('auto') alone.")
        count, index = _check_count(count, "shard(count={})"), _check_number(index, "shard(index={})")
        if not 0 <= index < count:
            raise PipelineError(f"shard({index}, {count}): the index must be 0..{count - 1}.")
        return replace(self, shard_index=index, shard_count=count)

    def map(
        self,
        function: Callable[..., Tree] | Transform,
        *,
        where: str = "thread",
        seed: int | None = None,
        workers: int | None = None,
    ) -> Self:
        """Call a function on every row (before `batch()`) or on every batch (after it).

        `where` selects where the function runs:

        - `"thread"`: worker threads, for NumPy code, which releases the GIL;
        - `"process"`: worker processes, for pure Python code;
        - `"ray"`: workers on a Ray cluster, for more CPU time than this machine has;
        - `"device"`: the GPU, on batches of the framework's arrays.

        `workers` limits the number of processes or Ray workers. A function with a parameter `rng` receives a random
        generator. Its numbers depend only on the seed, the epoch and the batch.

        When the feed starts, Forebay calls the function for the first batch, to infer the shapes and dtypes of its
        result (except on the device). Forebay may also call it for batches that the consumer never takes.

        >>> import numpy as np, forebay as fb
        >>> pipeline = fb.from_arrays(np.arange(4)).batch(2).map(lambda x: x * 10)
        >>> [batch.tolist() for batch in pipeline.feed("numpy")]
        [[0, 10], [20, 30]]
        """
        if isinstance(function, Cast | Scale | OneHot):
            return replace(self, transforms=(*self.transforms, function))
        if not callable(function):
            raise PipelineError(f"map() needs a function, got {function!r}.")
        by_row = self.batching is None and not isinstance(self.source, BatchStream)
        seed = self.seed if seed is None else seed
        workers = None if workers is None else _check_count(workers, "map(workers={})")
        transform = Map.of(function, where=where, by_row=by_row, seed=seed, workers=workers)
        return replace(self, transforms=(*self.transforms, transform))

    def batch(self, rows: int, *, drop_remainder: bool = False, pad: Mapping[str, Any] | Any | None = None) -> Self:
        """Combine `rows` rows into a batch.

        `drop_remainder=True` leaves out an incomplete last batch. With `pad=0`, rows may differ in shape: Forebay
        extends every row with zeros to the longest row of its batch. Pass a dict for a different value per field.
        """
        if isinstance(self.source, BatchStream):
            raise PipelineError("from_batches() yields ready-made batches. Leave batch() out.")
        if self.batching is not None:
            raise PipelineError(f"batch({self.batching.rows}) was called already: call batch() once.")
        rows = _check_count(rows, "batch({})")
        self._check_batch_rows(rows, drop_remainder)
        return replace(self, batching=Batching(rows, drop_remainder, pad))

    def repeat(self, count: int | None = None) -> Self:
        """Repeat all rows (before `batch()`) or all batches (after it) `count` times in each epoch.

        Without a `count`, the epoch never ends.
        """
        count = None if count is None else _check_count(count, "repeat({})")
        if self.batching is not None or isinstance(self.source, BatchStream):
            if self.batch_limit is not None:
                raise PipelineError("repeat() after take() on batches is not supported: call take() last.")
            return replace(self, passes=None if count is None or self.passes is None else self.passes * count)
        if self.order is None:
            return replace(self, source=RepeatedStream(self._stream, count))
        return replace(self, order=Repeated(self.order, count))

    def take(self, count: int) -> Self:
        """Keep only the first `count` rows (before `batch()`) or batches (after it) of each epoch."""
        count = _check_count(count, "take({})")
        if self.batching is not None or isinstance(self.source, BatchStream):
            return replace(self, batch_limit=min(count, self.batch_limit or count))
        if self.order is None:
            return replace(self, source=TakenStream(self._stream, count))
        return replace(self, order=Take(self.order, count))

    def feed(
        self,
        to: str = FeedOptions.to,
        *,
        device: str | Engine = FeedOptions.device,
        resident: str = FeedOptions.resident,
        host_bytes: int | str = FeedOptions.host_bytes,
        device_bytes: int | str | None = FeedOptions.device_bytes,
        **fields: Any,
    ) -> "Feed":
        """Start a feed and return it.

        A feed is an iterable over batches, as arrays of a framework. `to` is `"numpy"`, `"torch"`, `"jax"`,
        `"tensorflow"`, `"cupy"`, or `"keras"` for `model.fit(feed)`. Each iteration over the feed is the next epoch.
        Close the feed, or use it in a `with` statement.

        - `device`: `"cpu"`, `"cuda"`, `"cuda:1"` or an engine. `"auto"`: a GPU if there is one, but the CPU for NumPy.
        - `resident`: whether rows stay on the device: `"always"` or `"never"`. `"auto"` keeps rows there if they fit.
        - `host_bytes`: upper limit of the host memory that the feed allocates, not counting the source.
        - `device_bytes`: upper limit of the device memory. The default is a share of the free memory.
        - `fields`: for Keras only, the names of the fields for `x`, `y` and `sample_weight`.

        >>> import numpy as np, forebay as fb
        >>> with fb.from_arrays({"x": np.arange(4)}).batch(2).feed("numpy") as feed:
        ...     [batch["x"].tolist() for batch in feed]
        [[0, 1], [2, 3]]
        """
        options = FeedOptions(to, device, resident, host_bytes, device_bytes)
        pipeline = self._with_rank() if self.rank == "auto" else self
        adapter = registry.load_adapter(to) if isinstance(to, str) else None
        if adapter is not None:
            return adapter(pipeline, **options.keywords_except_to(), **fields)  # type: ignore[no-any-return]
        if fields:
            raise PipelineError(
                f"feed({to!r}) takes no {sorted(fields)[0]!r}: it takes {', '.join(options.keywords_except_to())}; "
                "naming fields is for feed('keras')."
            )
        return registry.load_feed()(pipeline, options)  # type: ignore[no-any-return]

    def __iter__(self) -> NoReturn:
        raise PipelineError("a pipeline only describes what to feed. Iterate pipeline.feed('numpy') or another feed.")

    @property
    def specs(self) -> Sequence[ArraySpec]:
        """Spec of each leaf of a row of the source, before any transform."""
        return self.source.specs

    @property
    def structure(self) -> Structure:
        """How the fields of a row are nested."""
        return self.source.structure

    @property
    def padded(self) -> bool:
        """Whether rows may differ in shape, and batches in size."""
        return self.batching is not None and self.batching.pad is not None

    @property
    def indexed(self) -> bool:
        """Whether rows are read by index. False for streams and ready-made batches."""
        return self.order is not None

    @property
    def schedule(self) -> Schedule:
        """How positions of the order become batches of this shard."""
        batch_rows, drop_remainder = (self.batching.rows, self.batching.drop_remainder) if self.batching else (1, False)
        length = self.order.length if self.order is not None else None
        rows, shard = ENDLESS if length is None else length, (self.shard_index, self.shard_count)
        return Schedule(rows, batch_rows, drop_remainder, *shard, self.passes, self.batch_limit)

    @property
    def fingerprint(self) -> str:
        """A hash of the order, the row specs, the passes and the batch limit.

        It does not depend on row values, batch size, shards or transforms. A state resumes only on an equal one.
        """
        order = self.order.describe() if self.order is not None else self._describe_stream()
        parts = [order, [str(spec) for spec in self.specs], self.structure.paths, self.passes, self.batch_limit]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]

    def _shuffle_stream(self, seed: int, block: int | None, window: int | str | None) -> Self:
        if block is not None or window is None:
            raise PipelineError(
                "a stream cannot be indexed. Give the size of the window in which rows are mixed, as in "
                "shuffle(seed=0, window='64MB'), and leave out block=."
            )
        return replace(self, source=ShuffledStream(self._stream, seed, parse_nbytes(window, "window")), seed=seed)

    def _blocks_in_window(self, window: int | str, block: int | str | None, mix: int | None) -> int:
        """Return how many blocks fit in the window."""
        if block in (None, "auto") or mix is not None:
            raise PipelineError(
                "shuffle(window=) is for streams, or replaces mix= as in shuffle(block=4096, window='64MB'). This "
                "source can be indexed: shuffle(seed=...) mixes all of its rows."
            )
        return max(1, parse_nbytes(window, "window") // self._block_nbytes(_check_count(block, "shuffle(block={})")))

    def _default_open_blocks(self, block: int) -> int:
        return max(MIN_OPEN_BLOCKS, min(MAX_OPEN_BLOCKS, OPEN_BLOCKS_NBYTES // self._block_nbytes(block)))

    def _block_nbytes(self, block: int) -> int:
        return max(1, block * sum(spec.nbytes for spec in self.specs))

    def _check_batch_rows(self, rows: int, drop_remainder: bool) -> None:
        length = self.order.length if self.order is not None else None
        if length is not None and drop_remainder and length // self.shard_count < rows:
            raise PipelineError(
                f"batch({rows}, drop_remainder=True) would drop all of {length // self.shard_count} rows. "
                "Choose a smaller batch, or keep the remainder."
            )

    def _with_rank(self) -> Self:
        rank = detect_rank()
        return replace(self, rank=rank, shard_index=rank.index, shard_count=rank.count)

    def _describe_stream(self) -> tuple[Any, ...]:
        return ("batches",) if isinstance(self.source, BatchStream) else self._stream.describe()

    @property
    def _stream(self) -> AbstractStream:
        assert isinstance(self.source, AbstractStream)
        return self.source


def _check_count(count: Any, call: str) -> int:
    """Return a whole number of at least 1 as int, or raise PipelineError."""
    number = _check_number(count, call)
    if number < 1:
        raise PipelineError(f"{call.format(count)}: pass a whole number of at least 1.")
    return number


def _check_number(number: Any, call: str) -> int:
    """Return an integer as int, or raise PipelineError. `call` is the user's call, such as "batch({})"."""
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    raise PipelineError(f"{call.format(repr(number))}: pass a whole number, such as {call.format(8)}.")
