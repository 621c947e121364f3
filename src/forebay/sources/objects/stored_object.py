"""One object of a store as it was listed, and a range of its bytes."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

__all__ = ["Piece", "StoredObject", "is_md5", "md5_of", "version_of", "version_of_all"]

_VERSION_KEYS = ("ETag", "etag", "generation", "LastModified", "last_modified", "updated", "mtime", "created")
_MD5_KEYS = ("md5Hash", "content_md5")  # Google's and Azure's, in base64


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What the listing said of an object."""

    url: str  # as people write it and errors name it, without credentials
    path: str  # as the file system calls it
    nbytes: int
    version: str  # differs once the object has changed: an ETag, a generation or a time; "" where the store tells none
    md5: str | None = None  # in hex, where the store says so


class Piece(NamedTuple):
    """Some bytes of one object; looked up so often that it must be a tuple."""

    number: int  # of the object
    start: int
    stop: int
    kept: bool  # whether it is a whole block, which tiers may hold

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def version_of(info: Mapping[str, Any]) -> str:
    """What tells one content of an object from another."""
    found = next((info[key] for key in _VERSION_KEYS if info.get(key)), "")
    # A time may come as a number from a listing, and as a date from a look at the object.
    return str(found.timestamp() if isinstance(found, datetime) else found)


def version_of_all(objects: Iterable[StoredObject]) -> str:
    """What tells one content of many objects from another."""
    told = "\n".join(f"{stored.url} {stored.nbytes} {stored.version}" for stored in objects)
    return hashlib.sha256(told.encode()).hexdigest()


def md5_of(info: Mapping[str, Any]) -> str | None:
    """The checksum that a listing gives outright; an ETag may be one, but only a response says whether it is."""
    given = next((info[key] for key in _MD5_KEYS if info.get(key)), None)
    if given is None:
        return None
    return bytes(given).hex() if isinstance(given, bytes | bytearray) else base64.b64decode(given).hex()


def is_md5(etag: str) -> bool:
    """Whether an ETag looks like a checksum; one of an upload in parts does not."""
    return re.fullmatch(r'"?[0-9a-f]{32}"?', etag) is not None
