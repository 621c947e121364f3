"""Small reads from an object, for the parsers of headers and archive directories."""

import io
from typing import Any

from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["HeaderReads"]

# Bytes per request, unless a parser reads more at once. Parsers make many small reads, and one request serves several.
_WINDOW_NBYTES = 16 * 1024


class HeaderReads:
    """Reads parts of one object.

    This class has the attributes of `MappedFile` that header parsers use, so the same parsers read files and objects.
    """

    def __init__(self, store: ObjectStore, stored_object: StoredObject) -> None:
        self._store, self.stored_object = store, stored_object
        self.nbytes = stored_object.nbytes
        self.path: Any = _ObjectStream(self)  # for parsers that open `path`, such as zipfile
        self._windows: list[tuple[int, bytes]] = []  # (offset, bytes) of each window that was read

    def __str__(self) -> str:
        return self.stored_object.url

    def read(self, start: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `start`, or fewer at the end of the object."""
        stop = min(start + nbytes, self.nbytes)
        if start >= stop:
            return b""
        for window_start, window in self._windows:
            if window_start <= start and stop <= window_start + len(window):
                return window[start - window_start : stop - window_start]
        window_start = max(0, min(start, self.nbytes - _WINDOW_NBYTES))
        window_stop = min(max(stop, window_start + _WINDOW_NBYTES), self.nbytes)
        self._windows.append((window_start, self._store.read(self.stored_object, window_start, window_stop)))
        return self.read(start, nbytes)


class _ObjectStream(io.RawIOBase):
    """An object as a binary file, for parsers that need a file object.

    `str()` returns the URL, for error messages.
    """

    def __init__(self, reads: HeaderReads) -> None:
        super().__init__()
        self._reads, self._position = reads, 0

    def __str__(self) -> str:
        return str(self._reads)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reads.nbytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._reads.read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
