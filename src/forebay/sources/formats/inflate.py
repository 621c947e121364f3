"""Decompression of one deflated member of an archive.

The size and the checksum are compared with the claims of the archive.

One call decompresses a member without the GIL. A deflate stream has no entry point in the middle, so parallel work
needs several members. isal is used if it is installed, else zlib.
"""

import zlib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["DeflatedData", "describe_codec"]

_MAX_RATIO = 1032  # of deflate: 258 bytes from two bits
_READ_NBYTES = 256 * 1024
_RAW = -zlib.MAX_WBITS  # a zip member has neither the header of zlib nor that of gzip


@dataclass(frozen=True, slots=True)
class DeflatedData:
    """A deflated member: its position, and its claimed size and checksum."""

    file: MappedFile
    name: str  # of the member in errors
    offset: int
    deflated_nbytes: int
    inflated_nbytes: int
    crc: int

    def validate(self) -> None:
        """Raise an error for impossible sizes."""
        if self.offset + self.deflated_nbytes > self.file.nbytes:
            raise SourceError(
                f"{self.name} is truncated: it ends after the {self.file.nbytes} bytes of its file. "
                "Write or download the file again."
            )
        if self.inflated_nbytes > self.deflated_nbytes * _MAX_RATIO + _READ_NBYTES:
            raise SourceError(
                f"{self.name} claims to inflate from {self.deflated_nbytes} to {self.inflated_nbytes} bytes, which "
                "deflate cannot do: the archive is damaged or forged. Write or download the file again."
            )

    def inflate_head(self, nbytes: int) -> bytes:
        """Return the first bytes. Inflate no more than that."""
        inflator, end = _codec().decompressobj(_RAW), self.offset + self.deflated_nbytes
        head = b""
        if not nbytes:  # a limit of 0 would mean no limit
            return head
        for start in range(self.offset, end, _READ_NBYTES):
            deflated = self.file.read(start, min(_READ_NBYTES, end - start))
            head += self._decompress(inflator, deflated, nbytes - len(head))
            if len(head) >= nbytes:
                break
        return head

    def inflate(self) -> Array:
        """Return all bytes.

        Raise an error if their number or their checksum is not as claimed.
        """
        inflator = _codec().decompressobj(_RAW)
        # The limit of one byte more than claimed bounds the memory and still detects a longer stream.
        deflated = self.file.read(self.offset, self.deflated_nbytes)
        data = self._decompress(inflator, deflated, self.inflated_nbytes + 1)
        if len(data) > self.inflated_nbytes:
            raise self._damaged(f"it holds more than the claimed {self.inflated_nbytes} bytes")
        if not inflator.eof:
            raise self._damaged("its data ends early")
        if len(data) != self.inflated_nbytes:
            raise self._damaged(f"it holds {len(data)} bytes and claims {self.inflated_nbytes}")
        if _codec().crc32(data) != self.crc:
            raise self._damaged("its checksum is wrong")
        return np.frombuffer(data, np.uint8)

    def _decompress(self, inflator: Any, deflated: bytes, max_nbytes: int) -> bytes:
        try:
            data: bytes = inflator.decompress(deflated, max_nbytes)
        except _codec().error as error:
            raise self._damaged(str(error)) from error
        return data

    def _damaged(self, reason: str) -> SourceError:
        return SourceError(f"{self.name} cannot be inflated: {reason}. Write or download the file again.")


def describe_codec() -> str:
    """Return which library inflates, and how to install the faster one."""
    if _codec() is zlib:
        return "by zlib; pip install 'forebay[npz]' adds isal, which takes half the time or less"
    return "by isal"


@cache
def _codec() -> Any:
    """Return a module with the interface of zlib."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib
