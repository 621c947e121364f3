"""`StoredObject` and `ByteRange`: an object in a store, and a byte range of an object."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

__all__ = ["ByteRange", "StoredObject", "combine_versions", "find_md5", "find_version", "is_md5"]

# Keys of `info` in fsspec. The value of the first key that has one is the version.
_VERSION_KEYS = (
    "ETag",
    "etag",
    "generation",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "created",
)
_MD5_KEYS = ("md5Hash", "content_md5")  # Google Cloud Storage and Azure; base64 or bytes


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a store, as the listing reports it."""

    url: str  # for error messages, without credentials
    path: str = field(repr=False)  # for fsspec; may contain credentials
    nbytes: int
    version: str  # ETag, generation or modification time; "" if the store reports none
    md5: str | None = None  # in hex, if the store reports it


class ByteRange(NamedTuple):
    """The bytes from `start` to `stop` (exclusive) of one object.

    It is a tuple, because hot paths use it as a dictionary key and tuples hash fast.
    """

    object_index: int  # in the list of objects of the source
    start: int
    stop: int
    cacheable: bool  # True for a whole block; cache tiers store only whole blocks

    @property
    def nbytes(self) -> int:
        """Length of the range in bytes."""
        return self.stop - self.start


def find_version(info: Mapping[str, Any]) -> str:
    """Return a text that changes when the object changes, or "" without a version."""
    version = next((info[key] for key in _VERSION_KEYS if info.get(key)), "")
    # fsspec may report a time as a number in a listing, and as a `datetime` for a single object.
    return str(version.timestamp() if isinstance(version, datetime) else version)


def combine_versions(objects: Iterable[StoredObject]) -> str:
    """Return a hash that changes when any of the objects changes, or "" if an object has no version."""
    objects = list(objects)
    if not all(stored_object.version for stored_object in objects):
        return ""
    text = "\n".join(f"{stored_object.url} {stored_object.nbytes} {stored_object.version}" for stored_object in objects)
    return hashlib.sha256(text.encode()).hexdigest()


def find_md5(info: Mapping[str, Any]) -> str | None:
    """Return the MD5 that a listing reports, in hex, or None if it reports none.

    Ignore ETags, because only the headers of a response show whether an ETag is an MD5.
    """
    md5 = next((info[key] for key in _MD5_KEYS if info.get(key)), None)
    if md5 is None:
        return None
    return bytes(md5).hex() if isinstance(md5, bytes | bytearray) else base64.b64decode(md5).hex()


def is_md5(etag: str) -> bool:
    """Return whether an ETag has the form of an MD5.

    For example, the ETag of a multipart upload has another form.
    """
    return re.fullmatch(r'"?[0-9a-f]{32}"?', etag) is not None
