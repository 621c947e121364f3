"""One object of a store as it was listed, and a byte range of it."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

__all__ = ["ByteRange", "StoredObject", "combined_version", "is_md5", "md5_of", "version_of"]

_VERSION_KEYS = ("ETag", "etag", "generation", "LastModified", "last_modified", "updated", "mtime", "created")
_MD5_KEYS = ("md5Hash", "content_md5")  # of Google and Azure, in base64


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What the listing reports about an object."""

    url: str  # for users and error messages, without credentials
    path: str  # for the file system
    nbytes: int
    version: str  # ETag, generation or time; it changes with the object. "" if the store reports none
    md5: str | None = None  # in hex, if the store reports it


class ByteRange(NamedTuple):
    """Some bytes of one object.

    It is a tuple, because hot paths use it as a dictionary key and tuples hash fast.
    """

    object_index: int
    start: int
    stop: int
    cacheable: bool  # True for a whole block, which cache tiers may hold

    @property
    def nbytes(self) -> int:
        """Length of the range."""
        return self.stop - self.start


def version_of(info: Mapping[str, Any]) -> str:
    """Return a value that changes with the content of an object, or ""."""
    found = next((info[key] for key in _VERSION_KEYS if info.get(key)), "")
    # A listing may report a time as a number, and a request for one object as a date.
    return str(found.timestamp() if isinstance(found, datetime) else found)


def combined_version(objects: Iterable[StoredObject]) -> str:
    """Return a value that changes with the content of any of the objects."""
    text = "\n".join(f"{stored.url} {stored.nbytes} {stored.version}" for stored in objects)
    return hashlib.sha256(text.encode()).hexdigest()


def md5_of(info: Mapping[str, Any]) -> str | None:
    """Return the MD5 that a listing reports, or None.

    An ETag may be an MD5 too, but only the headers of a response tell.
    """
    found = next((info[key] for key in _MD5_KEYS if info.get(key)), None)
    if found is None:
        return None
    return bytes(found).hex() if isinstance(found, bytes | bytearray) else base64.b64decode(found).hex()


def is_md5(etag: str) -> bool:
    """Return whether an ETag has the form of an MD5.

    The ETag of a multipart upload has another form.
    """
    return re.fullmatch(r'"?[0-9a-f]{32}"?', etag) is not None
