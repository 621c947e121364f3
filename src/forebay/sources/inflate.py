"""Deflated bytes of unknown trust, inflated piece by piece.

What an archive claims about itself never decides how much memory is taken: deflate cannot shrink data more than
about 1032 to 1, so a larger claim is a lie, and pages of the target are only touched as real data arrives.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forebay.errors import SourceError
from forebay.sources.base import Array
from forebay.sources.mapped import MappedFile

__all__ = ["Deflated"]

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
        head = bytearray()
        for piece in self._pieces(nbytes):
            head += piece
            if len(head) >= nbytes:
                break
        return bytes(head[:nbytes])

    def inflate(self) -> Array:
        """All of it, as bytes; size and checksum must be what the archive says. Other threads run meanwhile."""
        target = np.empty(self.inflated_nbytes, np.uint8)
        end, crc = 0, 0
        for piece in self._pieces(_READ_NBYTES):
            if end + len(piece) > self.inflated_nbytes:
                raise self._damaged(f"it holds more than the {self.inflated_nbytes} bytes that it claims")
            target[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
            end, crc = end + len(piece), zlib.crc32(piece, crc)
        if end != self.inflated_nbytes:
            raise self._damaged(f"it holds {end} bytes and claims {self.inflated_nbytes}")
        if crc != self.crc:
            raise self._damaged("its checksum is wrong")
        return target

    def _pieces(self, most_nbytes: int) -> Iterator[bytes]:
        inflator = zlib.decompressobj(_RAW)
        try:
            for piece in self._deflated_pieces():
                yield inflator.decompress(piece, most_nbytes)
                while inflator.unconsumed_tail:
                    yield inflator.decompress(inflator.unconsumed_tail, most_nbytes)
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        if not inflator.eof:
            raise self._damaged("its data ends early")

    def _deflated_pieces(self) -> Iterator[bytes]:
        end = self.offset + self.deflated_nbytes
        for start in range(self.offset, end, _READ_NBYTES):
            yield self.file.read(start, min(_READ_NBYTES, end - start))

    def _damaged(self, why: str) -> SourceError:
        return SourceError(f"{self.name} cannot be inflated: {why}. Write or download the file again.")
