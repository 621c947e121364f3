"""Files that fit into memory: read past the page cache the first time, which is faster, and kept in it from then on.

How many epochs there will be, nobody says. So the first costs nothing more, and with the second the files are brought
into the page cache beside the reads; when all are there, rows come from their mappings.
"""

from collections.abc import Hashable, Iterator, Sequence

from forebay.core.source import Array, Rows, Source, row_count
from forebay.sources.direct.page_cache import Warmer
from forebay.sources.direct.reader import Reader, ReadingPass, StoppedReadingError

__all__ = ["KeepingReader", "MappedReader"]

AGAIN = 1.1  # of all rows: the second epoch is under way then, and not only begun ahead of somebody who wants one


class MappedReader:
    """Gathers from mappings at once, while the files are brought into the page cache."""

    def __init__(self, source: Source, warmer: Warmer) -> None:
        self._source, self._warmer = source, warmer

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadingPass:
        self._warmer.start()
        return self

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        self._source.gather(rows, out)

    def stop(self) -> None:
        self._warmer.stop()

    def close(self) -> None:
        self._warmer.close()


class KeepingReader:
    """Gathers by another reader until rows are read again, and then until the files are in memory."""

    def __init__(self, reader: Reader, source: Source, warmer: Warmer) -> None:
        self._reader, self._source, self._warmer = reader, source, warmer
        self._rows_read = 0  # about: threads that count at once may miss some

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadingPass:
        return self if self._warmer.warm else _KeepingPass(self, self._reader.begin(groups))

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """From the mappings, once the files are in memory."""
        self._source.gather(rows, out)

    def gather_by(self, reading: ReadingPass, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """By the other reader, as long as they are not."""
        if not self._warmer.warm:
            try:
                reading.gather(group, rows, out)
            except StoppedReadingError:
                if not self._warmer.warm:
                    raise
            else:
                self._count(rows)
                return
        self._reader.stop()  # others may wait there for groups that are not gathered there any more
        self.gather(group, rows, out)

    def _count(self, rows: Rows) -> None:
        self._rows_read += row_count(rows)
        if self._rows_read >= AGAIN * len(self._source):
            self._warmer.start()

    def stop(self) -> None:
        self._warmer.stop()
        self._reader.stop()

    def close(self) -> None:
        self._warmer.close()
        self._reader.close()


class _KeepingPass:
    def __init__(self, keeping: KeepingReader, reading: ReadingPass) -> None:
        self._keeping, self._reading = keeping, reading

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        self._keeping.gather_by(self._reading, group, rows, out)
