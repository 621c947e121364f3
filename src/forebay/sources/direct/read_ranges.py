"""Byte ranges that hold the requested rows: aligned, merged, and split into single reads.

This module only computes. `read_threads.py` makes the reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay.core.intervals import merge_intervals
from forebay.core.rows import find_parts
from forebay.sources.direct.address_space import Addresses

__all__ = ["DiskReads", "ReadRanges", "merge_ranges"]

READ_NBYTES = 1 << 20  # bytes; larger reads are not faster, and small ones can run in parallel
SMALL_REST_NBYTES = 64 << 10  # bytes; a remainder up to this size becomes part of the read before it


@dataclass(frozen=True, slots=True)
class DiskReads:
    """Single reads, each to its own offset in one buffer."""

    starts: Addresses  # file number and offset in the file (see `AddressSpace`)
    nbytes: Addresses
    buffer_offsets: Addresses

    @classmethod
    def concatenate(cls, parts: "Sequence[DiskReads]") -> "DiskReads":
        """Return the reads of all parts."""
        starts, nbytes = [part.starts for part in parts], [part.nbytes for part in parts]
        offsets = [part.buffer_offsets for part in parts]
        return cls(np.concatenate(starts), np.concatenate(nbytes), np.concatenate(offsets))

    def select(self, which: Addresses) -> "DiskReads":
        """Return the reads at these positions."""
        return DiskReads(self.starts[which], self.nbytes[which], self.buffer_offsets[which])

    def after(self, done_nbytes: Addresses) -> "DiskReads":
        """Return the rest of each read after its first `done_nbytes`."""
        return DiskReads(self.starts + done_nbytes, self.nbytes - done_nbytes, self.buffer_offsets + done_nbytes)


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Contiguous address ranges, each with its offset in the buffer.

    Both starts and ends are ascending. Alignment can make the ranges of neighbouring blocks overlap. The buffer then
    holds the shared bytes twice.
    """

    starts: Addresses
    nbytes: Addresses
    buffer_offsets: Addresses

    @classmethod
    def combine(cls, parts: "Sequence[ReadRanges]") -> "ReadRanges":
        """Return the ranges of all parts, without ranges that lie inside an earlier range.

        `locate` takes the last range that begins at or before an address. A nested range may end before that address.
        """
        starts, nbytes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "nbytes"))
        order = np.lexsort((nbytes, starts))
        ends = (starts + nbytes)[order]
        # Keep a range only if it ends after all ranges before it.
        order = order[np.diff(np.maximum.accumulate(ends), prepend=-1) > 0]
        return cls(starts[order], nbytes[order], np.concatenate([part.buffer_offsets for part in parts])[order])

    @property
    def total_nbytes(self) -> int:
        """Size of a buffer that holds all ranges."""
        return int(self.nbytes.sum())

    def locate(self, addresses: Addresses) -> Addresses:
        """Return the buffer offset of each address.

        If several ranges contain an address, the last one counts.
        """
        range_numbers = find_parts(addresses, self.starts)
        found: Addresses = addresses + (self.buffer_offsets - self.starts)[range_numbers]
        return found

    def split(self) -> DiskReads:
        """Split the ranges into reads of about `READ_NBYTES`, without tiny last reads."""
        counts = np.maximum(-(-(self.nbytes - SMALL_REST_NBYTES) // READ_NBYTES), 1)
        range_numbers = np.repeat(np.arange(len(counts)), counts)
        offsets = (np.arange(len(range_numbers)) - np.repeat(np.cumsum(counts) - counts, counts)) * READ_NBYTES
        left = self.nbytes[range_numbers] - offsets
        nbytes = np.where(left <= READ_NBYTES + SMALL_REST_NBYTES, left, READ_NBYTES)
        return DiskReads(self.starts[range_numbers] + offsets, nbytes, self.buffer_offsets[range_numbers] + offsets)


def merge_ranges(starts: Addresses, nbytes: Addresses, *, alignment: int, gap: int = 0) -> ReadRanges:
    """Return the fewest aligned ranges that cover all given ranges.

    Ranges at most `gap` bytes apart are merged, together with the bytes between them.
    """
    first = starts // alignment * alignment
    last = -(-(starts + nbytes) // alignment) * alignment
    merged_starts, merged_ends = merge_intervals(first, last, gap=gap)
    lengths = merged_ends - merged_starts
    return ReadRanges(merged_starts, lengths, np.cumsum(lengths) - lengths)
