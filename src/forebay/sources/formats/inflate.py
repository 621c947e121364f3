"""Decompression of a zip member that is compressed with deflate.

The module uses the library isal if it is installed, otherwise zlib. `inflate` compares size and checksum of the result
with the archive's directory. A deflate stream can only be decompressed from its start, so one thread decompresses a
member. Decompression releases the GIL, so several threads decompress several members in parallel.
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

_MAX_RATIO = 1032  # maximum compression ratio of deflate: 2 bits can encode 258 bytes
_READ_NBYTES = 256 * 1024  # bytes of deflated data that `inflate_head` reads at a time
_RAW = -zlib.MAX_WBITS  # window bits for data without a zlib or gzip header, as in zip members


@dataclass(frozen=True, slots=True)
class DeflatedData:
    """Position, sizes and checksum of a deflated member, as the archive's directory states them."""

    file: MappedFile
    name: str  # member and archive, for error messages
    offset: int  # of the first deflated byte in the file
    deflated_nbytes: int
    inflated_nbytes: int
    crc: int  # CRC-32 of the inflated bytes

    def validate(self) -> None:
        """Raise an error if the sizes in the directory are impossible. This inflates nothing."""
        if self.offset + self.deflated_nbytes > self.file.nbytes:
            raise SourceError(
                f"{self.name} is truncated: it ends after the {self.file.nbytes} bytes of its file. "
                "Write or download the file again."
            )
        # The tolerance lets small sizes pass. They need little memory, and `inflate` verifies the size anyway.
        if self.inflated_nbytes > self.deflated_nbytes * _MAX_RATIO + _READ_NBYTES:
            raise SourceError(
                f"{self.name} claims to inflate from {self.deflated_nbytes} to {self.inflated_nbytes} bytes, which "
                "deflate cannot do: the archive is damaged or forged. Write or download the file again."
            )

    def inflate_head(self, nbytes: int) -> bytes:
        """Inflate and return only the first `nbytes` bytes, or fewer if the member is shorter."""
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
        """Inflate and return all bytes.

        Raise an error if their number or checksum differs from the archive's directory.
        """
        inflator = _codec().decompressobj(_RAW)
        deflated = self.file.read(self.offset, self.deflated_nbytes)
        # The limit bounds the memory. It is one byte above the expected size, to detect a stream that is too long.
        data = self._decompress(inflator, deflated, self.inflated_nbytes + 1)
        if len(data) > self.inflated_nbytes:
            raise self._damage_error(
                f"it inflates to more than the {self.inflated_nbytes} bytes in the archive's directory"
            )
        if not inflator.eof:
            raise self._damage_error("its data ends early")
        if len(data) != self.inflated_nbytes:
            raise self._damage_error(
                f"it inflates to {len(data)} bytes, but the archive's directory says {self.inflated_nbytes}"
            )
        if _codec().crc32(data) != self.crc:
            raise self._damage_error("its checksum is wrong")
        return np.frombuffer(data, np.uint8)

    def _decompress(self, inflator: Any, deflated: bytes, max_nbytes: int) -> bytes:
        try:
            data: bytes = inflator.decompress(deflated, max_nbytes)
        except _codec().error as error:
            raise self._damage_error(str(error)) from error
        return data

    def _damage_error(self, reason: str) -> SourceError:
        return SourceError(f"{self.name} cannot be inflated: {reason}. Write or download the file again.")


def describe_codec() -> str:
    """Return a phrase for `explain()` that names the library in use."""
    if _codec() is zlib:
        return "by zlib; pip install 'forebay[npz]' adds isal, which takes half the time or less"
    return "by isal"


@cache
def _codec() -> Any:
    """Return the module `isal_zlib` or `zlib`. Both have the same interface."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib
