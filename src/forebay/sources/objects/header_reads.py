"""Small reads from an object, for the parsers of headers and archive directories."""

from collections import deque

from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["HeaderReads"]

# Bytes per request, unless a parser reads more at once. Parsers make many small reads; a request serves several of
# them.
_RANGE_NBYTES = 16 * 1024
_MAX_RANGES = 1024  # byte ranges in memory; an archive may have any number of headers


class HeaderReads:
    """Reads parts of one object.

    This class has the attributes of `MappedFile` that header parsers use, so one parser reads both files and objects.
    """

    def __init__(self, store: ObjectStore, stored_object: StoredObject) -> None:
        self._store, self.stored_object = store, stored_object
        self.nbytes = stored_object.nbytes
        self.path = stored_object.url
        self._ranges: deque[tuple[int, bytes]] = deque(maxlen=_MAX_RANGES)  # (offset, bytes) of the last reads

    def __str__(self) -> str:
        return self.stored_object.url

    def read(self, start: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `start`, or fewer at the end of the object."""
        stop = min(start + nbytes, self.nbytes)
        if start >= stop:
            return b""
        for range_start, data in self._ranges:
            if range_start <= start and stop <= range_start + len(data):
                return data[start - range_start : stop - range_start]
        range_start = max(0, min(start, self.nbytes - _RANGE_NBYTES))
        range_stop = min(max(stop, range_start + _RANGE_NBYTES), self.nbytes)
        self._ranges.append((range_start, self._store.read(self.stored_object, range_start, range_stop)))
        return self.read(start, nbytes)
