"""Backends that read a byte range of an object through fsspec."""

from dataclasses import dataclass
from typing import Any, Protocol

from forebay.sources.objects.stored_object import StoredObject, find_version

__all__ = ["FsspecRangeBackend", "HttpRangeBackend", "RangeBackend", "RangeResponse"]


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """The bytes of a range, with the version and MD5 that the store reports."""

    data: bytes
    version: str  # "" if the store reports none
    md5: str | None = None  # of the whole object, in hex; None if the response has none


class RangeBackend(Protocol):
    """Reads byte ranges, each in one attempt. Thread-safe."""

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        """Read the bytes from `start` to `stop` (exclusive)."""
        ...


class FsspecRangeBackend:
    """Reads a range, then requests the object's current version if the listing has a version."""

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        data = self._file_system.cat_file(stored_object.path, start=start, end=stop)
        return RangeResponse(
            data, find_version(self._file_system.info(stored_object.path)) if stored_object.version else ""
        )


class HttpRangeBackend:
    """Reads a range with an `If-Match` header, so that the server rejects a changed object.

    `If-Match` requires a strong ETag, which begins with a quote. `FsspecRangeBackend` reads
    objects with any other version.
    """

    def __init__(self, file_system: Any) -> None:
        self._file_system, self._fallback = file_system, FsspecRangeBackend(file_system)

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        if not stored_object.version.startswith('"'):
            return self._fallback.read(stored_object, start, stop)
        data = self._file_system.cat_file(
            stored_object.path, start=start, end=stop, headers={"If-Match": stored_object.version}
        )
        return RangeResponse(data, stored_object.version)
