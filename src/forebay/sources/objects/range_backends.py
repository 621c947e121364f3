"""The interface of backends that read byte ranges, and the backend for fsspec."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from forebay.sources.objects.stored_object import StoredObject, find_version

__all__ = ["ContentRange", "FsspecRangeBackend", "RangeBackend", "RangeResponse", "parse_content_range"]

_CONTENT_RANGE = re.compile(r"\s*bytes\s+([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)\s*", re.IGNORECASE)


class ContentRange(NamedTuple):
    """The bytes from `start` to `stop` (exclusive) that a response contains, by its Content-Range header."""

    start: int
    stop: int
    object_nbytes: int | None  # None if the server does not report the length of the object

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.stop}"


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """The bytes of a range, with the version, range and MD5 that the store reports."""

    data: bytes
    version: str  # "" if the store reports no version
    content_range: ContentRange | None = None  # None if the response has no Content-Range header
    md5: str | None = None  # of the whole object, in hex; None if the response has no MD5


class RangeBackend(Protocol):
    """Reads byte ranges, with one attempt for each range. Thread-safe."""

    def info(self, path: str) -> Mapping[str, Any]:
        """Return name, type, size and version of one object, as `info` in fsspec does."""
        ...

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        """Read the bytes from `start` to `stop` (exclusive)."""
        ...


class FsspecRangeBackend:
    """Reads byte ranges with any fsspec file system.

    fsspec returns no version with the bytes. So if the listing has a version, this class requests the object's current
    version after each read.
    """

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system

    def info(self, path: str) -> Mapping[str, Any]:
        info: Mapping[str, Any] = self._file_system.info(path)
        return info

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        data = self._file_system.cat_file(stored_object.path, start=start, end=stop)
        return RangeResponse(data, find_version(self.info(stored_object.path)) if stored_object.version else "")


def parse_content_range(header: str | None) -> ContentRange | None:
    """Return the range of a Content-Range header; None without a valid header.

    >>> parse_content_range("bytes 0-9/200")
    ContentRange(start=0, stop=10, object_nbytes=200)
    """
    match = _CONTENT_RANGE.fullmatch(header or "")
    if match is None:
        return None
    return ContentRange(int(match[1]), int(match[2]) + 1, None if match[3] == "*" else int(match[3]))
