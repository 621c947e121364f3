"""The pipeline inputs: sources (rows by index), streams (rows in sequence) and ready-made batches.

`AbstractSource` and `AbstractStream` declare every optional feature with a default. A subclass overrides the features
that it supports. `Source` is the smallest protocol that `forebay.from_source()` accepts from other packages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.encoded_images import EncodedImages
from forebay.core.ragged import Ragged
from forebay.core.rows import Rows, row_count
from forebay.core.skipped_rows import ErrorLimit
from forebay.core.spec import Array, ArraySpec, Structure

__all__ = [
    "AbstractSource",
    "AbstractStream",
    "Closeable",
    "FileExtent",
    "MemoryExtent",
    "MemoryRegion",
    "MultiFileOpener",
    "PipelineInput",
    "Source",
    "StreamReader",
    "find_overlap",
    "sum_counters",
]


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """A part of host memory that contains rows and may be page-locked in place."""

    address: int
    nbytes: int
    writable: bool  # False for read-only memory, such as a mapped file


@dataclass(frozen=True, slots=True)
class MemoryExtent:
    """Rows of one leaf at a constant stride in memory.

    Row `first + i` begins at `address + i * stride`. The bytes of each row are contiguous. If the
    stride is smaller than a row, rows overlap. The windows of a series are an example.
    """

    first: int  # number of the first row
    rows: int  # number of rows
    address: int
    stride: int  # bytes
    writable: bool  # False for read-only memory, such as a mapped file
    own_pages: bool  # whether the first and the last memory page of the extent contain no other data


@dataclass(frozen=True, slots=True)
class FileExtent:
    """Rows of one leaf at a constant stride in a file.

    Row `first + i` begins at byte `offset + i * stride`.
    """

    first: int  # number of the first row
    rows: int  # number of rows
    path: Path
    stamp: tuple[int, int, int]  # inode, size and modification time (ns) of the file when it was opened
    offset: int  # bytes
    stride: int  # bytes


def find_overlap(extents: Sequence[MemoryExtent], row_nbytes: int) -> int:
    """Return how many bytes a row shares with the next row.

    Only the rows of one extent can overlap, such as the windows of one series. With several extents, such as one for
    each of several series, return 0: a row and the next row may lie in different extents.
    """
    return max(0, row_nbytes - extents[0].stride) if len(extents) == 1 else 0


class Closeable(Protocol):
    """Work in the background that `close()` ends."""

    def close(self) -> None: ...


@runtime_checkable
class Source(Protocol):
    """The smallest protocol of a source from another package.

    `specs` has the spec of each leaf of a row, and `structure` describes how the leaves are nested. `gather` writes row
    `rows[i]` of each leaf to `out[leaf][i]`; several threads call `gather` at the same time. `memory` returns the
    memory regions with the rows if a device may page-lock these regions, else an empty list. Derive from
    `AbstractSource` to support optional features.
    """

    @property
    def specs(self) -> Sequence[ArraySpec]: ...
    @property
    def structure(self) -> Structure: ...
    def __len__(self) -> int: ...
    def gather(self, rows: Rows, out: Sequence[Array]) -> None: ...
    def memory(self) -> Sequence[MemoryRegion]: ...
    def close(self) -> None: ...


class PipelineInput(ABC):
    """The base class of sources, streams and ready-made batches."""

    specs: Sequence[ArraySpec]  # one for each leaf of a row
    structure: Structure  # how the leaves of a row are nested

    row_by_row: bool = False  # whether Python code produces rows one by one
    needs_cluster: bool = False  # whether a Ray cluster produces the rows
    read_decision: Decision | None = None  # how the input reads its rows, for `explain()`
    cached_transforms: int = 0  # number of transforms that the pipeline applied before `cache()` stored the rows
    class_names: tuple[str, ...] = ()  # the names of the labels 0, 1, ... if the input knows them

    @property
    def infers_specs(self) -> bool:
        """Whether Forebay infers the specs from the first row; other rows may differ in shape."""
        return self.row_by_row

    @property
    def stored_rows(self) -> tuple[Sequence[ArraySpec], Structure]:
        """Specs and structure of the stored rows, before any map, for a pipeline's fingerprint."""
        return self.specs, self.structure

    def counters(self) -> dict[str, int]:
        """Return {name: count} about the reads so far, for `Feed.stats()`."""
        return {}

    def decisions(self) -> Sequence[Decision]:
        """Return the decisions that the input made while it was read, for `Feed.explain()`."""
        return ()

    def close(self) -> None:
        """Release files, memory and threads. A second call does nothing."""
        return


class AbstractSource(PipelineInput):
    """Rows that can be read by index. Several threads call `gather` at the same time."""

    # Whether rows cannot change while the source is open. If so, the feed may read rows of the next epoch in advance.
    immutable: bool = False
    version: str = ""  # identifies the stored data; empty if the storage reports no version
    shuffle_blocks: ShuffleBlocks | None = None  # the blocks for a shuffle; None if a shuffle may read single rows
    chunk_policy: ChunkPolicy = ChunkPolicy()  # how rows are grouped in chunks
    decodes_rows: bool = False  # whether decoder threads decode the rows of `gather`, for example images
    encoded_images: EncodedImages | None = None  # None if the host decodes the images, or if rows have none
    # Returns a source of the same rows with `encoded_images`. None if only the host may decode the images.
    for_device_decoder: Callable[[], "AbstractSource"] | None = None
    why_no_device_decoder = ""  # why a device may not decode the images; empty if it may, or if rows have no images
    # How many rows may be unreadable. With a limit, `gather` writes all readable rows and then raises
    # UnreadableRowsError for the unreadable rows. If the limit is None, the first unreadable row ends the feed.
    error_limit: ErrorLimit | None = None
    # Whether `prefetch` may read rows. If so, the caller of `prefetch` must pass each group as a whole to `gather`: the
    # source may find prefetched data by the row numbers of a group.
    can_prefetch: bool = False
    decompressed_nbytes: int = 0  # bytes of memory that the source uses after `decompress()`
    scratch_row_nbytes: int = 0  # bytes of temporary memory that `gather` needs for each row
    max_scratch_nbytes: int = 1 << 62  # upper limit of the temporary memory of one `gather`
    # Returns values that change if the data changes, such as names, sizes and times of files; a cache on disk stores
    # their hash. None if the source has no such values.
    identify: Callable[[], Any] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of each leaf to `out[leaf][i]`.

        Handle rows that cannot be read as `error_limit` says.
        """

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        """Return each row as a list of leaves. Override this if rows differ in shape."""
        out = [spec.empty(row_count(rows)) for spec in self.specs]
        self.gather(rows, out)
        return [list(row) for row in zip(*out, strict=True)]

    def gather_columns(self, rows: Rows, fill_values: Sequence[Any]) -> list[Array | Ragged] | None:
        """Return each leaf of these rows as one array, or None.

        Pad rows that differ in length with the fill value of the leaf. If this fill value is None, return the leaf as
        `Ragged`. Return None if the source reads rows one by one; Forebay then calls `gather_rows`.
        """
        return None

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        """Return the leaves with these indices, each as one array of these rows.

        Override this method if the source can skip the remaining leaves when it reads rows.
        """
        if any(spec.ragged for spec in self.specs):
            columns = list(zip(*self.gather_rows(rows), strict=True))
            return [np.stack(columns[leaf]) for leaf in leaves]
        out = [spec.empty(row_count(rows)) for spec in self.specs]
        self.gather(rows, out)
        return [out[leaf] for leaf in leaves]

    def row_lengths(self, leaf: int) -> Array | None:
        """Return the first length of a leaf in each row.

        Return None if the source would have to read the rows to know their lengths.
        """
        return None

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        """Start to read the rows of upcoming groups in the background.

        Each item of `upcoming` has the row numbers of one group. Several sources may take the same groups, each at its
        own speed, and the faster ones wait for the slowest. So a source that will take no more groups must drop all
        references to `upcoming`. Return an object whose `close()` stops the reads, or None if the source does not
        prefetch.
        """
        return None

    def decompress(self) -> None:
        """Decompress all rows, unless they are decompressed already. Any thread may call this."""
        return

    def reopener(self) -> Callable[[], "AbstractSource"] | None:
        """Return a function that opens the same data again, faster than the first time.

        Forebay calls the function after it has closed the source. Return None if a reopened source would not be faster.
        """
        return None

    @property
    def plan_version(self) -> int:
        """A number that grows when a feed needs a new plan.

        For example, it grows when a row cache is complete.
        """
        return 0

    @property
    def held_nbytes(self) -> int:
        """The held bytes: memory that the source uses now for decompressed or parsed rows."""
        return 0

    def windows(self, rows: slice, length: int, stride: int) -> "AbstractSource | None":
        """Return a source of windows that share the memory of the rows.

        Return None if this source cannot share its memory. Window `i` has `length` rows from row
        `rows.start + i * stride` on. All windows end at row `rows.stop - 1` or before it.
        """
        return None

    def memory(self) -> Sequence[MemoryRegion]:
        """Return the memory regions that contain the rows and may be page-locked.

        Return an empty list unless all rows are in such regions.
        """
        return []

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        """Return the memory extents of each leaf, or an empty list if there are none.

        A device reads rows from these extents, so the bytes of a row must be contiguous and in native byte order.
        """
        return []

    def file_extents(self) -> Sequence[Sequence[FileExtent]]:
        """Return the file extents of each leaf, or an empty list if there are none.

        Forebay may read these extents without the page cache (`sources/direct`).
        """
        return []


def sum_counters(counters: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add the counters of several sources.

    >>> sum_counters([{"a": 1}, {"a": 2, "b": 3}])
    {'a': 3, 'b': 3}
    """
    total: dict[str, int] = {}
    for source_counters in counters:
        for name, value in source_counters.items():
            total[name] = total.get(name, 0) + value
    return total


@runtime_checkable
class MultiFileOpener(Protocol):
    """The opener of a file format with one row per file, such as images."""

    def open_many(self, paths: Sequence[Path], **options: Any) -> AbstractSource:
        """Open many files as one source."""
        ...


class StreamReader(Protocol):
    """One pass over a stream."""

    def read(self, out: Sequence[Array]) -> int:
        """Write the next rows to `out`, and return their number.

        The number is smaller than the length of `out` only at the end of the stream.
        """
        ...

    def skip(self, rows: int) -> int:
        """Skip up to `rows` rows, and return the number of skipped rows."""
        ...

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the stream, or None if the stream has no state.

        The state describes the position after the last row that was read.
        """
        ...

    def close(self) -> None: ...


class AbstractStream(PipelineInput):
    """Rows that can only be read in sequence."""

    inner: "AbstractStream | None" = None  # the stream that this stream wraps; None if it wraps no stream

    @abstractmethod
    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        """Begin a pass at its first row, or at the position that `state` describes."""

    @abstractmethod
    def sample(self, rows: int) -> list[list[Array]]:
        """Return up to `rows` first rows of the stream, each as a list of leaves.

        Forebay infers specs from these rows. A later pass returns them again.
        """

    @abstractmethod
    def describe(self) -> tuple[Any, ...]:
        """Return plain values that identify the stream.

        A feed refuses to resume from the state of a stream with a different description.
        """
