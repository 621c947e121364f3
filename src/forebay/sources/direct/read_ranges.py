"""Address ranges that hold the requested rows: aligned, merged, and split into single reads.

An address identifies a byte of one of the files (`address_space.py`). This module does no I/O. `read_threads.py` makes
the reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay.core.intervals import merge_intervals
from forebay.core.rows import find_parts
from forebay.sources.direct.address_space import Integers

__all__ = ["DiskReads", "ReadRanges", "merge_ranges"]

READ_NBYTES = 1 << 20  # bytes; larger reads are not faster, and several reads of this size run in parallel
SMALL_REST_NBYTES = 64 << 10  # bytes; a remainder of up to this size is added to the last read of its range


@dataclass(frozen=True, slots=True)
class DiskReads:
    """Single reads from files into one buffer."""

    starts: Integers  # address of the first byte of each read
    nbytes: Integers
    buffer_offsets: Integers  # where the bytes of each read go in the buffer

    @classmethod
    def concatenate(cls, parts: "Sequence[DiskReads]") -> "DiskReads":
        """Return the reads of all parts in one object."""
        starts, nbytes = [part.starts for part in parts], [part.nbytes for part in parts]
        offsets = [part.buffer_offsets for part in parts]
        return cls(np.concatenate(starts), np.concatenate(nbytes), np.concatenate(offsets))

    def select(self, positions: Integers) -> "DiskReads":
        """Return the reads at these positions."""
        return DiskReads(self.starts[positions], self.nbytes[positions], self.buffer_offsets[positions])

    def skip_first(self, done_nbytes: Integers) -> "DiskReads":
        """Return each read without its first `done_nbytes[i]` bytes."""
        return DiskReads(self.starts + done_nbytes, self.nbytes - done_nbytes, self.buffer_offsets + done_nbytes)


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Contiguous address ranges, each with its offset in the buffer.

    Starts and ends are both ascending. After alignment, the ranges of neighbouring blocks may overlap. The buffer then
    holds the shared bytes twice.
    """

    starts: Integers  # address of the first byte of each range
    nbytes: Integers
    buffer_offsets: Integers

    @classmethod
    def combine(cls, parts: "Sequence[ReadRanges]") -> "ReadRanges":
        """Return the ranges of all parts, without ranges that are inside another range.

        `locate` uses the last range that begins at or before an address. A nested range may end before that address.
        """
        starts, nbytes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "nbytes"))
        order = np.lexsort((nbytes, starts))
        ends = (starts + nbytes)[order]
        # Keep a range only if it ends after all ranges before it.
        order = order[np.diff(np.maximum.accumulate(ends), prepend=-1) > 0]
        return cls(starts[order], nbytes[order], np.concatenate([part.buffer_offsets for part in parts])[order])

    @property
    def total_nbytes(self) -> int:
        """Bytes of all ranges, which is the size of a buffer for them."""
        return int(self.nbytes.sum())

    def locate(self, addresses: Integers) -> Integers:
        """Return the buffer offset of each address, in the last range that contains the address."""
        range_numbers = find_parts(addresses, self.starts)
        offsets: Integers = addresses + (self.buffer_offsets - self.starts)[range_numbers]
        return offsets

    def split(self) -> DiskReads:
        """Split the ranges into reads of about `READ_NBYTES`, without tiny last reads."""
        counts = np.maximum(-(-(self.nbytes - SMALL_REST_NBYTES) // READ_NBYTES), 1)
        range_numbers = np.repeat(np.arange(len(counts)), counts)
        offsets = (np.arange(len(range_numbers)) - np.repeat(np.cumsum(counts) - counts, counts)) * READ_NBYTES
        remaining = self.nbytes[range_numbers] - offsets
        nbytes = np.where(remaining <= READ_NBYTES + SMALL_REST_NBYTES, remaining, READ_NBYTES)
        return DiskReads(self.starts[range_numbers] + offsets, nbytes, self.buffer_offsets[range_numbers] + offsets)


def merge_ranges(starts: Integers, nbytes: Integers, *, alignment: int, gap: int = 0) -> ReadRanges:
    """Return the fewest aligned ranges that cover all requested ranges.

    If at most `gap` bytes are between two ranges, the result has one range that includes these bytes.
    """
    aligned_starts = starts // alignment * alignment
    aligned_ends = -(-(starts + nbytes) // alignment) * alignment
    merged_starts, merged_ends = merge_intervals(aligned_starts, aligned_ends, gap=gap)
    lengths = merged_ends - merged_starts
    return ReadRanges(merged_starts, lengths, np.cumsum(lengths) - lengths)
