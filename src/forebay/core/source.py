"""What a source is: rows that can be asked for by number, or rows that only come one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from forebay.core.spec import Array, ArraySpec, Structure

__all__ = [
    "Array",
    "Blocks",
    "Extent",
    "Region",
    "Rows",
    "Source",
    "Stored",
    "Stream",
    "StreamReader",
    "row_count",
    "row_views",
]

Rows: TypeAlias = (
    np.ndarray[Any, np.dtype[np.intp]] | slice
)  # row numbers; a slice (start, stop, no step) where they follow each other

_MIXED_BLOCKS = 16
_MIXED_ROWS = 1 << 16  # of small blocks more are mixed, until there are so many rows


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of memory that rows lie in and that may be page-locked in place."""

    address: int
    nbytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of one leaf that lie at equal distances: row `first + i` at `address + i * stride`, each in one piece."""

    first: int
    rows: int
    address: int
    stride: int
    writable: bool
    own_pages: bool  # whether nothing else lies on the pages where it begins and ends


@dataclass(frozen=True, slots=True)
class Blocks:
    """How rows are read that cannot be read one by one: so many at a time, of which so many blocks may be held."""

    rows: int
    held: int

    @property
    def mix(self) -> int:
        """Blocks for a shuffle to mix: as many again may be held, for what comes next is read meanwhile."""
        return max(2, min(self.held // 2, max(_MIXED_BLOCKS, _MIXED_ROWS // self.rows)))


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of one leaf that lie in a file at equal distances: row `first + i` at byte `offset + i * stride`."""

    first: int
    rows: int
    path: Path
    stamp: tuple[int, int, int]  # the file's inode, size and time of change when it was opened
    offset: int
    stride: int


@runtime_checkable
class Source(Protocol):
    """Rows that can be asked for by number.

    `specs` and `structure` describe one row, flat and nested. `gather` writes row `rows[i]` of leaf `l` to
    `out[l][i]`; it is called from several threads at once. `memory` gives the regions the rows lie in,
    where they may be page-locked, and nothing otherwise. A source may have `extents()` too: for each leaf, where its
    rows lie in those regions, for a device to fetch them by itself; nothing where they are not whole and as they are
    handed off; and `stored()`, the same in files, for rows to be read past the page cache. A source that can only read
    many rows at a time, and cannot hold them all, may say in `blocks` how to shuffle them, and in `reads`, a `Reason`,
    what it does. A source whose rows cannot change while it is open may say so with `fixed = True`: the next epoch is
    then gathered before this one ends.
    """

    @property
    def specs(self) -> Sequence[ArraySpec]: ...
    @property
    def structure(self) -> Structure: ...
    def __len__(self) -> int: ...
    def gather(self, rows: Rows, out: Sequence[Array]) -> None: ...
    def memory(self) -> Sequence[Region]: ...
    def close(self) -> None: ...


class StreamReader(Protocol):
    """One pass over a stream."""

    def read(self, out: Sequence[Array]) -> int:
        """Write the next rows into `out` until it is full; how many there were: fewer only at the end."""
        ...

    def skip(self, rows: int) -> int:
        """Pass over rows; how many there were."""
        ...

    def state_dict(self) -> dict[str, Any] | None:
        """The stream's own state after the last row read, where it has one."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Stream(Protocol):
    """Rows that come one after the other; `start` begins a pass, from a state of its own where one is given."""

    @property
    def specs(self) -> Sequence[ArraySpec]: ...
    @property
    def structure(self) -> Structure: ...
    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader: ...
    def sample(self, rows: int) -> list[list[Array]]:
        """The first rows, as lists of leaves, to trace maps with; reading gives them again."""
        ...

    def describe(self) -> tuple[Any, ...]:
        """What the stream is, as plain values: a state must agree with it to be resumed."""
        ...

    def close(self) -> None: ...


def row_views(leaf: Array) -> list[Array]:
    """A view of each row. Assigning to a ready view costs a third of assigning to an index."""
    return [leaf[place, ...] for place in range(len(leaf))]


def row_count(rows: Rows) -> int:
    """How many rows are asked for."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
