"""A deflated member of an archive, inflated whole: checked against what the archive says of it, never beyond its claim.

One call inflates a member, and other threads run meanwhile; a stream of deflate has no place to begin in the middle, so
only different members are inflated at the same time. By isal where it is installed, else by zlib.
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

__all__ = ["Deflated", "codec_told"]

_MAX_RATIO = 1032  # of deflate: 258 bytes from two bits
_READ_NBYTES = 256 * 1024
_RAW = -zlib.MAX_WBITS  # a zip member has neither zlib's nor gzip's header


@dataclass(frozen=True, slots=True)
class Deflated:
    """Where a deflated member lies in its file, and what the archive says it becomes."""

    file: MappedFile
    name: str  # what errors call it
    offset: int
    deflated_nbytes: int
    inflated_nbytes: int
    crc: int

    def check(self) -> None:
        """Refuse claims that cannot be true."""
        if self.offset + self.deflated_nbytes > self.file.nbytes:
            raise SourceError(f"{self.name} is cut short: it should end past the {self.file.nbytes} bytes of its file.")
        if self.inflated_nbytes > self.deflated_nbytes * _MAX_RATIO + _READ_NBYTES:
            raise SourceError(
                f"{self.name} claims to become {self.inflated_nbytes} bytes out of {self.deflated_nbytes}, "
                f"which deflate cannot do: the archive is damaged or forged."
            )

    def head(self, nbytes: int) -> bytes:
        """The first bytes, inflating no more than that."""
        inflator, end = _codec().decompressobj(_RAW), self.offset + self.deflated_nbytes
        head = b""
        if not nbytes:  # which would mean as much as there is
            return head
        for start in range(self.offset, end, _READ_NBYTES):
            deflated = self.file.read(start, min(_READ_NBYTES, end - start))
            head += self._inflated(inflator, deflated, nbytes - len(head))
            if len(head) >= nbytes:
                break
        return head

    def inflate(self) -> Array:
        """All of it, as bytes; size and checksum must be what the archive says."""
        inflator = _codec().decompressobj(_RAW)
        # One byte more than it claims would be seen, and no more is inflated however many there are.
        deflated = self.file.read(self.offset, self.deflated_nbytes)
        data = self._inflated(inflator, deflated, self.inflated_nbytes + 1)
        if len(data) > self.inflated_nbytes:
            raise self._damaged(f"it holds more than the {self.inflated_nbytes} bytes that it claims")
        if not inflator.eof:
            raise self._damaged("its data ends early")
        if len(data) != self.inflated_nbytes:
            raise self._damaged(f"it holds {len(data)} bytes and claims {self.inflated_nbytes}")
        if _codec().crc32(data) != self.crc:
            raise self._damaged("its checksum is wrong")
        return np.frombuffer(data, np.uint8)

    def _inflated(self, inflator: Any, deflated: bytes, most_nbytes: int) -> bytes:
        try:
            data: bytes = inflator.decompress(deflated, most_nbytes)
        except _codec().error as error:
            raise self._damaged(str(error)) from error
        return data

    def _damaged(self, why: str) -> SourceError:
        return SourceError(f"{self.name} cannot be inflated: {why}. Write or download the file again.")


def codec_told() -> str:
    """Which library inflates, and how to have the faster one."""
    if _codec() is zlib:
        return "by zlib; pip install 'forebay[npz]' brings isal, which takes half the time or less"
    return "by isal"


@cache
def _codec() -> Any:
    """Something that does as zlib does."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib
