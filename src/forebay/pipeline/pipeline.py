"""The frozen description of what is fed: source, order, transforms, batch. It owns no thread and no buffer.

>>> import numpy as np
>>> pipeline = from_arrays(np.arange(10)).shuffle(seed=1).batch(4)
>>> [len(batch) for batch in pipeline.feed("numpy")]
[4, 4, 2]
"""

import hashlib
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from forebay.core import registry
from forebay.core.engine import Engine
from forebay.core.source import Blocks, Source, Stream
from forebay.core.spec import ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import PipelineError, SourceError
from forebay.order.orders import BlockShuffled, First, Natural, Order, Repeated, Shuffled
from forebay.order.schedule import ENDLESS, Schedule
from forebay.pipeline.ranks import Rank, read_rank
from forebay.sources.arrays import ArraySource
from forebay.sources.files.many_files import open_files
from forebay.sources.files.reopen import Opening
from forebay.sources.items import ItemSource
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.combinators import RepeatedStream, ShuffledStream, TakenStream
from forebay.sources.streams.generator import RowStream
from forebay.transforms.ops import Cast, Map, OneHot, Scale, Transform

if TYPE_CHECKING:  # the feed stands above the pipeline; only its name is needed here
    from forebay.feed.feed import Feed

__all__ = ["Batching", "Pipeline", "from_arrays", "from_batches", "from_files", "from_generator", "from_source"]

USUAL_MIX, MOST_USUAL_MIX = 16, 1024  # blocks whose rows a shuffle by blocks mixes: as many as have
USUAL_WINDOW_NBYTES = 32 << 20  # so many bytes, since host_bytes of twice that should do


@dataclass(frozen=True, slots=True)
class Batching:
    """How rows become batches."""

    rows: int
    drop_remainder: bool
    pad: Mapping[str, Any] | Any | None  # a value, or one for each field; None: rows must be alike


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What to feed. Every verb gives a new pipeline; verbs before `batch` see rows, after it batches."""

    source: Source | Stream | BatchStream
    order: Order | None = None  # None: the source is a stream
    transforms: tuple[Transform, ...] = ()
    batching: Batching | None = None
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1
    batch_limit: int | None = None
    seed: int = 0
    opening: Opening | None = None  # how files were opened, for workers on other machines to do the same
    rank: Rank | Literal["auto"] | None = None  # where the shard comes from, if not from numbers; "auto": not read yet

    def shuffle(
        self,
        *,
        seed: int = 0,
        block: int | Literal["auto"] | None = "auto",
        mix: int | None = None,
        window: int | str | None = None,
    ) -> Self:
        """Draw the rows in another order each epoch.

        By default any row may come anywhere, exactly, without a table of rows. `block=4096` keeps reads inside
        a few blocks of so many rows, for data beyond RAM: blocks come in shuffled order and the rows of `mix`
        of them are mixed, or of as many as have the bytes of `window` (32 MiB, and 16 blocks at least). So a block
        lands anywhere, and its rows stay near each other: `explain()` says how near. `"auto"` does that by itself for
        files that are read by chunk and are too large to be held unpacked; `block=None` never does.
        Streams cannot be indexed: there `window="64MB"` lets rows leave a window of so many bytes at random.
        """
        if self.batching is not None:
            raise PipelineError("shuffle() works on rows: call it before batch().")
        seed, mix = _check_number(seed, "seed"), None if mix is None else _check_count(mix, "mix")
        if isinstance(self.source, BatchStream):
            raise PipelineError("ready-made batches cannot be shuffled here: shuffle where they are made.")
        if self.order is None:
            return self._shuffle_stream(seed, None if block == "auto" else block, window)
        if window is not None:
            mix = self._mix_of(window, block, mix)
        if block == "auto":
            blocks: Blocks | None = getattr(self.source, "blocks", None) if self.order.natural else None
            block, mix = (blocks.rows, mix or blocks.mix) if blocks else (None, mix)
        if block is None:
            return replace(self, order=Shuffled(self.order, seed), seed=seed)
        block = _check_count(block, "block")
        order = BlockShuffled(self.order, seed, block, mix or self._usual_mix(block))
        return replace(self, order=order, seed=seed)

    def _mix_of(self, window: int | str, block: int | str | None, mix: int | None) -> int:
        """The blocks that have so many bytes."""
        if block in (None, "auto") or mix is not None:
            raise PipelineError(
                "shuffle(window=) is for streams, or says instead of mix= how many blocks to mix, as in "
                "shuffle(block=4096, window='64MB'); this source can be indexed: shuffle(seed=...) mixes all of it."
            )
        return max(1, parse_nbytes(window, "window") // self._block_nbytes(_check_count(block, "block")))

    def _usual_mix(self, block: int) -> int:
        return max(USUAL_MIX, min(MOST_USUAL_MIX, USUAL_WINDOW_NBYTES // self._block_nbytes(block)))

    def _block_nbytes(self, block: int) -> int:
        return max(1, block * sum(spec.nbytes for spec in self.specs))

    def _shuffle_stream(self, seed: int, block: int | None, window: int | str | None) -> Self:
        if block is not None or window is None:
            raise PipelineError(
                "a stream cannot be indexed: say in how many bytes to mix rows, as in shuffle(seed=0, window='64MB')."
            )
        return replace(self, source=ShuffledStream(self._stream(), seed, parse_nbytes(window, "window")), seed=seed)

    def shard(self, index: int | Literal["auto"], count: int | None = None) -> Self:
        """Take every `count`-th row of the global order, from the `index`-th on.

        `shard("auto")` is this process's part among the ranks of Ray Train, torch.distributed, jax.distributed or
        TensorFlow's MultiWorkerMirroredStrategy, read when `feed()` is called. All ranks take the same number of steps.
        """
        if self.shard_count > 1 or self.rank is not None:
            already = "by rank" if self.rank is not None else f"{self.shard_index} of {self.shard_count}"
            raise PipelineError(f"the pipeline is sharded already ({already}).")
        if index == "auto" and count is None:
            return replace(self, rank="auto")
        if isinstance(index, str) or count is None:
            raise PipelineError(f"shard({index!r}, {count!r}): say shard(index, count), or shard('auto') alone.")
        count, index = _check_count(count, "count"), _check_number(index, "index")
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
        """Call a function on every row (before `batch`) or batch (after it).

        `where="thread"` suits NumPy code, which lets other threads run; `where="process"` suits pure Python;
        `where="ray"` is for more of it than this machine has CPUs. `workers` says how many of either at most.
        A function with a parameter `rng` gets a generator drawn from (seed, epoch, batch). It is called once when
        the feed is made, to see what comes out, and may be called for batches that nobody takes in the end.
        """
        if isinstance(function, Cast | Scale | OneHot):
            return replace(self, transforms=(*self.transforms, function))
        if not callable(function):
            raise PipelineError(f"map() needs a function, got {function!r}.")
        by_row = self.batching is None and not isinstance(self.source, BatchStream)
        seed = self.seed if seed is None else seed
        workers = None if workers is None else _check_count(workers, "workers")
        made = Map.of(function, where=where, by_row=by_row, seed=seed, workers=workers)
        return replace(self, transforms=(*self.transforms, made))

    def batch(self, rows: int, *, drop_remainder: bool = False, pad: Mapping[str, Any] | Any | None = None) -> Self:
        """Put so many rows together. `pad=0` makes rows of different shape as long as the longest of their batch."""
        if isinstance(self.source, BatchStream):
            raise PipelineError("from_batches() gives ready-made batches already: leave batch() out.")
        if self.batching is not None:
            raise PipelineError(f"batch({self.batching.rows}) was called already: call batch() once.")
        rows = _check_count(rows, "batch")
        self._check_rows(rows, drop_remainder)
        return replace(self, batching=Batching(rows, drop_remainder, pad))

    def repeat(self, count: int | None = None) -> Self:
        """Go over everything before this verb `count` times in one epoch; without a count, for ever."""
        count = None if count is None else _check_count(count, "repeat")
        if self.batching is not None or isinstance(self.source, BatchStream):
            if self.batch_limit is not None:
                raise PipelineError("repeat() after take() on batches is not supported: call take() last.")
            return replace(self, passes=None if count is None or self.passes is None else self.passes * count)
        if self.order is None:
            return replace(self, source=RepeatedStream(self._stream(), count))
        return replace(self, order=Repeated(self.order, count))

    def take(self, count: int) -> Self:
        """Only the first so many rows (before `batch`) or batches (after it) of each epoch."""
        count = _check_count(count, "take")
        if self.batching is not None or isinstance(self.source, BatchStream):
            return replace(self, batch_limit=min(count, self.batch_limit or count))
        if self.order is None:
            return replace(self, source=TakenStream(self._stream(), count))
        return replace(self, order=First(self.order, count))

    def feed(
        self,
        to: str = "numpy",
        *,
        device: str | Engine = "auto",
        resident: str = "auto",
        host_bytes: int | str = "256MiB",
        device_bytes: int | str | None = None,
        **fields: Any,
    ) -> "Feed":
        """Start feeding batches as arrays of a framework: numpy, torch, jax, tensorflow, or into keras's `fit`."""
        options = {"device": device, "resident": resident, "host_bytes": host_bytes, "device_bytes": device_bytes}
        pipeline = self._ranked() if self.rank == "auto" else self
        adapter = registry.adapter(to) if isinstance(to, str) else None
        if adapter is not None:
            return adapter(pipeline, **options, **fields)  # type: ignore[no-any-return]  # looked up by name
        if fields:
            raise PipelineError(
                f"feed({to!r}) takes no {sorted(fields)[0]!r}: it takes {', '.join(options)}; naming fields is for "
                "feed('keras')."
            )
        return registry.feed()(pipeline, to=to, **options)  # type: ignore[no-any-return]  # looked up by name

    def _ranked(self) -> Self:
        """The shard of this process's rank."""
        rank = read_rank()
        return replace(self, rank=rank, shard_index=rank.index, shard_count=rank.count)

    def __iter__(self) -> NoReturn:
        raise PipelineError(
            "a pipeline only describes what to feed: iterate pipeline.feed('numpy'), or another framework."
        )

    # What the layers above ask

    @property
    def specs(self) -> Sequence[ArraySpec]:
        """One row of the source, before any transform."""
        return self.source.specs

    @property
    def structure(self) -> Structure:
        return self.source.structure

    @property
    def padded(self) -> bool:
        """Whether rows may differ in length, and batches in size."""
        return self.batching is not None and self.batching.pad is not None

    @property
    def indexed(self) -> bool:
        return self.order is not None

    @property
    def schedule(self) -> Schedule:
        """The arithmetic of this pipeline's epochs."""
        batch_rows, drop_remainder = (self.batching.rows, self.batching.drop_remainder) if self.batching else (1, False)
        length = self.order.length if self.order is not None else None
        return Schedule(
            ENDLESS if length is None else length,
            batch_rows,
            drop_remainder,
            self.shard_index,
            self.shard_count,
            self.passes,
            self.batch_limit,
        )

    @property
    def fingerprint(self) -> str:
        """What a state must agree with to be resumed: the rows and their order, not how they are cut or sharded."""
        order = self.order.describe() if self.order is not None else self._stream_description()
        shape = [order, [str(spec) for spec in self.specs], self.structure.paths, self.passes, self.batch_limit]
        return hashlib.sha256(json.dumps(shape, default=str).encode()).hexdigest()[:16]

    def _stream_description(self) -> tuple[Any, ...]:
        return ("batches",) if isinstance(self.source, BatchStream) else self._stream().describe()

    def _stream(self) -> Any:
        return self.source

    def _check_rows(self, rows: int, drop_remainder: bool) -> None:
        length = self.order.length if self.order is not None else None
        if length is not None and drop_remainder and length // self.shard_count < rows:
            raise PipelineError(
                f"batch({rows}, drop_remainder=True) would drop all of {length // self.shard_count} rows. "
                "Choose a smaller batch, or keep the remainder."
            )


def from_arrays(tree: Tree) -> Pipeline:
    """Feed rows of arrays in memory: a dict, tuple or nest of arrays, or a lone array. Nothing is copied."""
    return _indexed(ArraySource(tree))


def from_files(files: str | Path | Sequence[str | Path], *, spec: Tree | None = None, **options: Any) -> Pipeline:
    """Feed rows of files; a path, a glob or a list of them, all together one row space.

    .npy and stored .npz are mapped in place; compressed .npz are inflated when first needed. Options go to the format:
    .npz `members`; .csv `delimiter`, `header`; .bin `byteorder`, `skip_nbytes` (and `spec`, which says what a record
    is); images `size`, `channels`; .h5 and .zarr `members`, `group`; .parquet and .arrow `columns`, `decode`; .tar
    `members`, `decode`, `size`, `channels`; .tfrecord `members`, `decode`. Of many files, at most `max_open_files` are
    open, and of all at most `max_held_bytes` unpacked.

    Addresses such as s3://bucket/*.npy are read through fsspec: `storage_options`, `cache`, `cache_bytes`, `ram_bytes`,
    `ahead_bytes`, `connections` and `attempts` say how.
    """
    files = files if isinstance(files, str | Path) else list(files)
    source = open_files(files, spec=spec, **options)
    return replace(_indexed(source), opening=Opening(files, spec, options, getattr(source, "version", "")))


def from_generator(make: Callable[[], Iterable[Tree]], *, spec: Tree | None = None) -> Pipeline:
    """Feed rows from `make()`, called anew for each pass; without a spec, the first row says what rows look like."""
    return Pipeline(RowStream(make, spec))


def from_batches(loader: Iterable[Tree]) -> Pipeline:
    """Feed ready-made batches from any iterable: tf.data, DataLoader, Grain, a list, or a generator function."""
    return Pipeline(BatchStream(loader))


def from_source(source: Any) -> Pipeline:
    """Feed rows of a `Source`, or of anything with `__len__` and `__getitem__` (and `__getitems__`, if it has it)."""
    return _indexed(source if isinstance(source, Source) else ItemSource(source))


def _indexed(source: Source) -> Pipeline:
    if len(source) == 0:
        raise SourceError("the source has no rows: there is nothing to feed.")
    return Pipeline(source, Natural(len(source)))


def _check_count(count: Any, name: str) -> int:
    number = _check_number(count, name)
    if number < 1:
        raise PipelineError(f"{name}={count!r} must be a whole number of at least 1.")
    return number


def _check_number(number: Any, name: str) -> int:
    """Any whole number, NumPy's too."""
    try:
        if not isinstance(number, bool):  # which Python counts among them
            return operator.index(number)
    except TypeError:
        pass
    raise PipelineError(f"{name}={number!r} must be a whole number, such as {name}=8.")
