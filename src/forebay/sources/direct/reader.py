"""The interface of file readers, which gather the rows of a feed from files."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from forebay.core.rows import Rows
from forebay.core.spec import Array

__all__ = ["FileReader", "ReadSession"]


class ReadSession(Protocol):
    """The reads of one iteration over a feed.

    They begin at the cursor of the feed and may continue into the next epochs. Several threads gather at the same time,
    each one group, roughly in the order of the groups.
    """

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`."""
        ...


class FileReader(Protocol):
    """Reads the rows of a source in sessions. A new session ends the previous one."""

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadSession:
        """Begin a session that reads these groups: pairs of a group id and its rows."""
        ...

    def stop(self) -> None:
        """End the current session and wake all threads that wait for a group."""
        ...

    def close(self) -> None:
        """Release files, threads and memory. No thread may gather after this call."""
        ...
