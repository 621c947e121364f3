"""What a reader is: it gathers the rows of one feed out of files, and may be told beforehand which they will be."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from forebay.core.source import Array, Rows
from forebay.errors import SourceError

__all__ = ["Reader", "ReadingPass", "StoppedReadingError"]


class StoppedReadingError(SourceError):
    """Raised to whoever waits for rows when reading is given up; nobody waits for its groups any more."""


class ReadingPass(Protocol):
    """One walk through the order; groups are gathered by several threads at once, in about their order."""

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`."""
        ...


class Reader(Protocol):
    """Where passes begin; a new one ends the one before."""

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadingPass:
        """Walk through these groups, known by whatever names they go by, and the rows of each."""
        ...

    def stop(self) -> None:
        """Give the pass under way up, and wake whoever waits."""
        ...

    def close(self) -> None:
        """Give everything back; nobody gathers any more."""
        ...
