"""Decompression of one archive member that is compressed with deflate.

Forebay compares size and checksum of the result with the values in the archive's directory.

Decompression releases the GIL. A deflate stream can only be decompressed from its start, so each member is the work of
one thread. Several members can be decompressed in parallel. Forebay uses isal if it is installed, else zlib.
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

_MAX_RATIO = 1032  # highest compression ratio of deflate: two bits can encode 258 bytes
_READ_NBYTES = 256 * 1024  # deflated bytes that `inflate_head` reads at a time
_RAW = -zlib.MAX_WBITS  # raw deflate: a zip member has no zlib or gzip header


@dataclass(frozen=True, slots=True)
class DeflatedData:
    """Position, sizes and checksum of a deflated member, as the archive's directory states them."""

    file: MappedFile
    name: str  # of the member, for error messages
    offset: int
    deflated_nbytes: int
    inflated_nbytes: int
    crc: int  # CRC-32 of the inflated bytes

    def validate(self) -> None:
        """Raise an error if the stated sizes are impossible. Nothing is inflated."""
        if self.offset + self.deflated_nbytes > self.file.nbytes:
            raise SourceError(
                f"{self.name} is truncated: it ends after the {self.file.nbytes} bytes of its file. "
                "Write or download the file again."
            )
        # Small sizes always pass: they need little memory, and `inflate` compares the size anyway.
        if self.inflated_nbytes > self.deflated_nbytes * _MAX_RATIO + _READ_NBYTES:
            raise SourceError(
                f"{self.name} claims to inflate from {self.deflated_nbytes} to {self.inflated_nbytes} bytes, which "
                "deflate cannot do: the archive is damaged or forged. Write or download the file again."
            )

    def inflate_head(self, nbytes: int) -> bytes:
        """Return the first `nbytes` bytes without inflating the rest."""
        inflator, end = _codec().decompressobj(_RAW), self.offset + self.deflated_nbytes
        head = b""
        if not nbytes:  # zlib treats a limit of 0 as no limit
            return head
        for start in range(self.offset, end, _READ_NBYTES):
            deflated = self.file.read(start, min(_READ_NBYTES, end - start))
            head += self._decompress(inflator, deflated, nbytes - len(head))
            if len(head) >= nbytes:
                break
        return head

    def inflate(self) -> Array:
        """Return all bytes.

        Raise an error if their number or checksum differs from the archive's directory.
        """
        inflator = _codec().decompressobj(_RAW)
        deflated = self.file.read(self.offset, self.deflated_nbytes)
        # The limit bounds the memory. One more byte than expected is enough to detect a stream that is too long.
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
    """Name the library that inflates, as a phrase for `explain()`."""
    if _codec() is zlib:
        return "by zlib; pip install 'forebay[npz]' adds isal, which takes half the time or less"
    return "by isal"


@cache
def _codec() -> Any:
    """Return `isal_zlib` or `zlib`, which have the same interface."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib
