"""Ranges of objects of any file system that fsspec opens."""

from dataclasses import dataclass
from typing import Any, Protocol

from forebay.sources.objects.stored_object import StoredObject, version_of

__all__ = ["AnyRanges", "HttpRanges", "Ranges", "Response"]


@dataclass(frozen=True, slots=True)
class Response:
    """Some bytes of an object, and what the store says the object is."""

    data: bytes
    version: str
    md5: str | None = None  # of the whole object, where the response gives it


class Ranges(Protocol):
    """Reads a range once, without a second try; called from many threads."""

    def read(self, stored: StoredObject, start: int, stop: int) -> Response: ...


class AnyRanges:
    """A range, and then the version the object has after it was read."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def read(self, stored: StoredObject, start: int, stop: int) -> Response:
        data = self._files.cat_file(stored.path, start=start, end=stop)
        return Response(data, version_of(self._files.info(stored.path)) if stored.version else "")


class HttpRanges:
    """A range, refused by the server if the object has changed; a weak tag makes no condition."""

    def __init__(self, files: Any) -> None:
        self._files, self._plain = files, AnyRanges(files)

    def read(self, stored: StoredObject, start: int, stop: int) -> Response:
        if not stored.version.startswith('"'):
            return self._plain.read(stored, start, stop)
        data = self._files.cat_file(stored.path, start=start, end=stop, headers={"If-Match": stored.version})
        return Response(data, stored.version)
