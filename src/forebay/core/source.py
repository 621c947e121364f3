"""What a pipeline reads: sources (rows by index), streams (rows in sequence), ready-made batches.

`AbstractSource` and `AbstractStream` declare every optional feature with its default. A class overrides only what it
supports. `Source` is the smallest protocol that `forebay.from_source()` accepts from other packages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_count
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
]


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """A part of host memory that holds rows and may be page-locked in place."""

    address: int
    nbytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class MemoryExtent:
    """Rows of one leaf at a constant stride in memory.

    Row `first + i` begins at `address + i * stride`.

    The bytes of each row are contiguous.
    """

    first: int
    rows: int
    address: int
    stride: int
    writable: bool
    own_pages: bool  # True if no other data shares the first and the last page


@dataclass(frozen=True, slots=True)
class FileExtent:
    """Rows of one leaf at a constant stride in a file.

    Row `first + i` begins at byte `offset + i * stride`.
    """

    first: int
    rows: int
    path: Path
    stamp: tuple[int, int, int]  # inode, size and modification time (ns) of the file when it was opened
    offset: int
    stride: int


class Closeable(Protocol):
    """Background work that runs until it is closed."""

    def close(self) -> None: ...


@runtime_checkable
class Source(Protocol):
    """The smallest protocol of a source from another package.

    `specs` and `structure` describe one row, flat and nested. `gather` writes row `rows[i]` of leaf `l` to
    `out[l][i]`; several threads call it at the same time. `memory` returns the regions that hold the rows if they may
    be page-locked, else an empty list. Derive from `AbstractSource` to support more.
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
    """What sources, streams and ready-made batches have in common."""

    specs: Sequence[ArraySpec]  # one row, flat
    structure: Structure  # how the leaves of one row are nested

    needs_cluster: bool = False  # True if a Ray cluster produces the rows
    read_decision: Decision | None = None  # how rows are read, for `explain()`

    def counters(self) -> dict[str, int]:
        """Return what was read so far, for `Feed.stats()`."""
        return {}

    def decisions(self) -> Sequence[Decision]:
        """Return the decisions made while reading, for `Feed.explain()`."""
        return ()

    def close(self) -> None:
        """Release files, memory and threads. A second call does nothing."""
        return


class AbstractSource(PipelineInput):
    """Rows by index. Several threads call `gather` at the same time."""

    immutable: bool = False  # True if rows cannot change while it is open; then the feed may fill the next epoch early
    version: str = ""  # identifies the stored data, if the storage reports a version
    shuffle_blocks: ShuffleBlocks | None = None  # set if a shuffle should stay inside a few blocks of rows
    chunk_policy: ChunkPolicy = ChunkPolicy()  # how rows are grouped in chunks
    decompressed_nbytes: int = 0  # memory that the source holds after `decompress()`

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`."""

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        """Return each row as a list of leaves. Override this if rows differ in shape."""
        out = [spec.empty(row_count(rows)) for spec in self.specs]
        self.gather(rows, out)
        return [list(row) for row in zip(*out, strict=True)]

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        """Read the rows of upcoming groups in the background until the result is closed.

        Return None if the source does not prefetch.
        """
        return None

    def decompress(self) -> None:
        """Decompress all rows now, unless this was done before. Any thread may call this."""
        return

    def reopener(self) -> Callable[[], "AbstractSource"] | None:
        """Return a function that opens the same data again at lower cost.

        Return None if there is no cheaper method.

        The function is called after the source is closed.
        """
        return None

    @property
    def held_nbytes(self) -> int:
        """Memory that the source holds now for decompressed or parsed rows."""
        return 0

    def memory(self) -> Sequence[MemoryRegion]:
        """Return the memory regions that hold the rows and may be page-locked.

        Return an empty list unless all rows are in such regions.
        """
        return []

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        """Return for each leaf where its rows are in memory, else an empty list.

        A device reads rows from there, so the bytes of a row must be contiguous and in native byte order.
        """
        return []

    def file_extents(self) -> Sequence[Sequence[FileExtent]]:
        """Return for each leaf where its rows are in files, else an empty list.

        The direct readers use these extents to bypass the page cache.
        """
        return []


@runtime_checkable
class MultiFileOpener(Protocol):
    """The opener of a format with one row in each file.

    It opens many files as one source.
    """

    def open_many(self, paths: Sequence[Path], **options: Any) -> AbstractSource: ...


class StreamReader(Protocol):
    """One pass over a stream."""

    def read(self, out: Sequence[Array]) -> int:
        """Write the next rows to `out` and return their number.

        The number is less than the length of `out` only at the end.
        """
        ...

    def skip(self, rows: int) -> int:
        """Skip rows and return their number."""
        ...

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the stream, or None if it has none.

        The state describes the position after the last row that was read.
        """
        ...

    def close(self) -> None: ...


class AbstractStream(PipelineInput):
    """Rows in sequence."""

    inner: "AbstractStream | None" = None  # the stream that this stream wraps

    @abstractmethod
    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        """Begin a pass, from a state of the stream if one is given."""

    @abstractmethod
    def sample(self, rows: int) -> list[list[Array]]:
        """Return the first rows as lists of leaves, to infer specs.

        A later pass returns them again.
        """

    @abstractmethod
    def describe(self) -> tuple[Any, ...]:
        """Return plain values that identify the stream. A state of another stream is refused."""
