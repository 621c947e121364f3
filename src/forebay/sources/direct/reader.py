"""The interface of file readers, which gather the rows of a feed from files."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from forebay.core.rows import Rows
from forebay.core.spec import Array

__all__ = ["FileReader", "ReadPass"]


class ReadPass(Protocol):
    """One pass over the rows.

    Several threads gather at the same time, each one group, roughly in the order of the groups.
    """

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`."""
        ...


class FileReader(Protocol):
    """Reads the rows of a source in passes. A new pass ends the previous one."""

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadPass:
        """Begin a pass over groups. Each item is a group id and its rows."""
        ...

    def stop(self) -> None:
        """End the current pass and wake all threads that wait for a group."""
        ...

    def close(self) -> None:
        """Release files, threads and memory. No thread may gather after this call."""
        ...
