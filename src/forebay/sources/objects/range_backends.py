"""Reads of byte ranges from any file system of fsspec."""

from dataclasses import dataclass
from typing import Any, Protocol

from forebay.sources.objects.stored_object import StoredObject, version_of

__all__ = ["FsspecRangeBackend", "HttpRangeBackend", "RangeBackend", "RangeResponse"]


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """Some bytes of an object, with the version and checksum that the store reports."""

    data: bytes
    version: str
    md5: str | None = None  # of the whole object, if the response has it


class RangeBackend(Protocol):
    """Reads a byte range in one attempt. Many threads call it."""

    def read(self, stored: StoredObject, start: int, stop: int) -> RangeResponse:
        """Return the bytes from `start` to `stop`."""
        ...


class FsspecRangeBackend:
    """Reads a range, then asks for the current version of the object."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def read(self, stored: StoredObject, start: int, stop: int) -> RangeResponse:
        data = self._files.cat_file(stored.path, start=start, end=stop)
        return RangeResponse(data, version_of(self._files.info(stored.path)) if stored.version else "")


class HttpRangeBackend:
    """Reads a range with an `If-Match` header, so that the server refuses a changed object.

    A weak ETag cannot be used in that header.
    """

    def __init__(self, files: Any) -> None:
        self._files, self._unconditional = files, FsspecRangeBackend(files)

    def read(self, stored: StoredObject, start: int, stop: int) -> RangeResponse:
        if not stored.version.startswith('"'):
            return self._unconditional.read(stored, start, stop)
        data = self._files.cat_file(stored.path, start=start, end=stop, headers={"If-Match": stored.version})
        return RangeResponse(data, stored.version)
