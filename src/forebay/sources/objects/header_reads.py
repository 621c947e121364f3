"""Small reads of an object: its header or its archive directory."""

import io
from typing import Any

from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["HeaderReads"]

_WINDOW_NBYTES = 16 * 1024  # bytes per request; parsers make small reads, and one request serves several of them


class HeaderReads:
    """Reads parts of one object, with the reading interface of `MappedFile`.

    So the same parsers read headers of local files and of objects.
    """

    def __init__(self, store: ObjectStore, stored: StoredObject) -> None:
        self._store, self.stored = store, stored
        self.nbytes = stored.nbytes
        self.path: Any = _ObjectStream(self)
        self._windows: list[tuple[int, bytes]] = []  # (offset, bytes) of each window that was read

    def __str__(self) -> str:
        return self.stored.url

    def read(self, start: int, nbytes: int) -> bytes:
        """Return some bytes; fewer at the end of the object."""
        stop = min(start + nbytes, self.nbytes)
        if start >= stop:
            return b""
        for first, window in self._windows:
            if first <= start and stop <= first + len(window):
                return window[start - first : stop - first]
        first = max(0, min(start, self.nbytes - _WINDOW_NBYTES))
        last = min(max(stop, first + _WINDOW_NBYTES), self.nbytes)
        self._windows.append((first, self._store.read(self.stored, first, last)))
        return self.read(start, nbytes)


class _ObjectStream(io.RawIOBase):
    """The object as an open file, for parsers that need one.

    Its text form is the URL of the object.
    """

    def __init__(self, file: HeaderReads) -> None:
        super().__init__()
        self._file, self._position = file, 0

    def __str__(self) -> str:
        return str(self._file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.nbytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
