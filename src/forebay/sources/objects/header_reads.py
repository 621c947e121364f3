"""An object read here and there as a file is: headers and directories, before it is known where its rows lie."""

import io
from typing import Any

from forebay.sources.objects.store import Store
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["ObjectFile"]

_WINDOW_NBYTES = 16 * 1024  # read around what is asked for: a header comes in several small steps


class ObjectFile:
    """What the readers of headers know of a file: its name, its length, some of its bytes."""

    def __init__(self, store: Store, stored: StoredObject) -> None:
        self._store, self.stored = store, stored
        self.nbytes = stored.nbytes
        self.path: Any = _RawObject(self)
        self._windows: list[tuple[int, bytes]] = []

    def __str__(self) -> str:
        return self.stored.url

    def read(self, start: int, nbytes: int) -> bytes:
        """A copy of some bytes; fewer where the object ends."""
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


class _RawObject(io.RawIOBase):
    """The same as an open file, for whoever wants one; its name is the object's."""

    def __init__(self, file: ObjectFile) -> None:
        super().__init__()
        self._file, self._place = file, 0

    def __str__(self) -> str:
        return str(self._file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.nbytes}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)
