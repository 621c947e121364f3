"""A folder with a Zarr store, whose files are checked before zarr reads them."""

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from forebay.core.spec import format_nbytes
from forebay.errors import SourceError
from forebay.sources.files.external_files import external_file_error
from forebay.sources.files.held_budget import MAX_ITEM_NBYTES
from forebay.sources.formats.zarr_codecs import names_in_document

__all__ = ["CheckedStore"]

_METADATA_NAMES = (".zarray", ".zmetadata", "zarr.json")
_JSON_NAMES = (*_METADATA_NAMES, ".zattrs", ".zgroup")
_MAX_METADATA_NBYTES = 64 * 2**20  # bytes of one metadata document
_JSON_VALUE_NBYTES = 128  # bytes of memory that a parsed value takes at most: a text and its place in a dict


class CheckedStore(LocalStore):  # type: ignore[misc]  # mypy does not check zarr
    """A read-only store of regular files with a limited size.

    It raises an error before zarr allocates memory for a file or for a value. zarr may replace this error by its own,
    so `error` keeps it.
    """

    def __init__(self, root: Path, max_file_nbytes: int, *, follows_links: bool) -> None:
        """`follows_links` tells whether symbolic links may lead out of the store."""
        super().__init__(root, read_only=True)
        self.max_file_nbytes, self.follows_links = max_file_nbytes, follows_links
        self._real_root = os.path.realpath(root)
        self.codec_names: list[str] = []  # in all metadata that zarr read
        self.error: SourceError | None = None

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        name = key.rpartition("/")[2]
        try:
            self._validate_file(key, min(self.max_file_nbytes, _MAX_METADATA_NBYTES if name in _JSON_NAMES else 2**63))
            value = await super().get(key, *args, **kwargs)
            if name in _JSON_NAMES and value is not None:
                self._validate_value_count(key, value.to_bytes())
            if name in _METADATA_NAMES and value is not None:
                self._validate_metadata(key, value.to_bytes())
        except SourceError as error:
            self.error = error
            raise
        return value

    def _validate_file(self, key: str, max_nbytes: int) -> None:
        """Raise SourceError for a pipe, a link out of the store, or a large file.

        A pipe would block zarr forever.
        """
        try:
            status = (self.root / key).stat()
        except OSError:
            return  # zarr returns the fill value for a missing chunk
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise SourceError(f"{self.root / key} is not a regular file. Write or download the store again.")
        if not (self.follows_links or os.path.realpath(self.root / key).startswith(self._real_root + os.sep)):
            raise external_file_error(f"{self.root / key} is behind a symbolic link that leads out of the store")
        if status.st_size > max_nbytes:
            raise SourceError(
                f"{self.root / key} has {status.st_size} bytes, more than the limit of {format_nbytes(max_nbytes)} for "
                "a file of a Zarr store. Write the store with smaller chunks, or pass a larger max_held_bytes=."
            )

    def _validate_value_count(self, key: str, content: bytes) -> None:
        """Raise SourceError if the parsed values of `content` would exceed the limit.

        They need far more memory than their text.
        """
        count = sum(map(content.count, (b"[", b"{", b",")))
        if count * _JSON_VALUE_NBYTES > self.max_file_nbytes:
            raise SourceError(
                f"{self.root / key} has up to {count} values, which need {count * _JSON_VALUE_NBYTES} bytes of memory, "
                f"more than the limit of {format_nbytes(self.max_file_nbytes)}. If you trust the store, pass "
                f"max_held_bytes={count * _JSON_VALUE_NBYTES} or more."
            )

    def _validate_metadata(self, key: str, content: bytes) -> None:
        try:
            documents = list(_array_documents(json.loads(content)))
        except (ValueError, RecursionError):
            return  # zarr raises its own error
        for document in documents:
            self.codec_names += names_in_document(document)
            nbytes = _claimed_item_nbytes(document)
            if nbytes > MAX_ITEM_NBYTES:
                raise SourceError(
                    f"{self.root / key} is damaged: it claims values of {nbytes} bytes, more than the limit of "
                    f"{format_nbytes(MAX_ITEM_NBYTES)}. Write or download the store again."
                )


def _array_documents(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the metadata of all arrays in a document, which may contain consolidated metadata."""
    if not isinstance(document, dict):
        return
    if "shape" in document:
        yield document
    consolidated = document.get("consolidated_metadata") or document
    inner = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    for inner_document in inner.values() if isinstance(inner, dict) else ():
        yield from _array_documents(inner_document)


def _claimed_item_nbytes(document: dict[str, Any]) -> int:
    """Return the bytes of one value, or an upper bound.

    zarr allocates the fill value when it parses the metadata.
    """
    dtype = document.get("dtype", document.get("data_type"))
    try:
        return int(np.dtype(_to_tuples(dtype)).itemsize)
    except (TypeError, ValueError):
        # The dtype is a name with a number of bits, such as "r16", or has the parameter length_bytes. A structured
        # dtype has several of these numbers, so their sum is an upper bound.
        return sum(map(int, re.findall("[0-9]{1,18}", json.dumps(dtype))))


def _to_tuples(dtype: Any) -> Any:
    """Convert the fields of a structured dtype, which JSON stores as lists."""
    return [tuple(map(_to_tuples, field)) for field in dtype] if _is_fields(dtype) else dtype


def _is_fields(dtype: Any) -> bool:
    return isinstance(dtype, list) and bool(dtype) and all(isinstance(field, list) for field in dtype)
