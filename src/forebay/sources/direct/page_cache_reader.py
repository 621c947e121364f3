"""Readers that let a thread fill the page cache while they read rows.

The thread of a `MappedReader` starts in the first epoch. The thread of a `PageCacheReader` starts in the second epoch,
or later if the feed reads only a shard.
"""

from collections.abc import Hashable, Iterator, Sequence

from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.sources.direct.page_cache import PageCacheWarmer
from forebay.sources.direct.reader import FileReader, ReadSession
from forebay.sources.lookahead import ReadStoppedError

__all__ = ["MappedReader", "PageCacheReader"]

# Start to fill the page cache after this number of gathered rows, relative to the rows of the source. It is above 1.0,
# because the feed prefetches rows of a second epoch that may never be used. Filling the page cache reads all files. A
# feed of a shard therefore waits for several epochs; in a short training run, it never reads the rows of other shards.
WARM_AFTER_EPOCHS = 1.1


class MappedReader:
    """Gathers rows from mapped files while a thread reads them into the page cache."""

    def __init__(self, source: AbstractSource, warmer: PageCacheWarmer) -> None:
        self._source, self._warmer = source, warmer

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadSession:
        """Start the thread that fills the page cache, and begin a session."""
        self._warmer.start()
        return self

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Gather rows from the mapped files."""
        self._source.gather(rows, out)

    def stop(self) -> None:
        """Tell the thread that fills the page cache to end."""
        self._warmer.stop()

    def close(self) -> None:
        """End the thread."""
        self._warmer.close()


class PageCacheReader:
    """Reads rows with another reader until the page cache holds the files.

    The number of epochs is unknown, so the first epoch uses `reader`, which reads rows into buffers and is the fastest
    for a single pass. When the feed has gathered `WARM_AFTER_EPOCHS` times the rows of the source, a thread starts to
    read the files into the page cache. When all files are in the page cache, this class gathers rows from the mapped
    files.
    """

    def __init__(self, reader: FileReader, source: AbstractSource, warmer: PageCacheWarmer) -> None:
        self._reader, self._source, self._warmer = reader, source, warmer
        self._rows_read = 0  # approximate, because threads add to it without a lock

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> ReadSession:
        """Begin a session. It uses the read buffers unless the page cache holds the files."""
        return self if self._warmer.is_warm else _PageCacheSession(self, self._reader.begin(groups))

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Gather rows from the mapped files."""
        self._source.gather(rows, out)

    def gather_in_session(self, session: ReadSession, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Gather rows through read buffers, or from the mapped files once these are cached."""
        if not self._warmer.is_warm:
            try:
                session.gather(group, rows, out)
            except ReadStoppedError:
                if not self._warmer.is_warm:
                    raise
            else:
                self._count_rows(rows)
                return
        # Wake threads that wait for a read buffer: no group releases its buffers any more.
        self._reader.stop()
        self.gather(group, rows, out)

    def _count_rows(self, rows: Rows) -> None:
        self._rows_read += row_count(rows)
        if self._rows_read >= WARM_AFTER_EPOCHS * len(self._source):
            self._warmer.start()

    def stop(self) -> None:
        """End the current session and stop filling the page cache."""
        self._warmer.stop()
        self._reader.stop()

    def close(self) -> None:
        """End all threads and close the files."""
        self._warmer.close()
        self._reader.close()


class _PageCacheSession:
    """One session of a `PageCacheReader` that begins with read buffers."""

    def __init__(self, reader: PageCacheReader, session: ReadSession) -> None:
        self._reader, self._session = reader, session

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        self._reader.gather_in_session(self._session, group, rows, out)
