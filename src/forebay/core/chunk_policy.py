"""Policy for files in chunks: chunks that stay in memory, and blocks for a shuffle."""

from dataclasses import dataclass

from forebay.core.decision import Decision
from forebay.core.spec import format_nbytes

__all__ = ["ChunkPolicy", "ShuffleBlocks"]

_OPEN_BLOCKS = 16  # blocks whose rows a shuffle mixes at a time, if they fit in memory
_OPEN_ROWS = 1 << 16  # with small blocks, a shuffle mixes more blocks, up to this number of rows


@dataclass(frozen=True, slots=True)
class ShuffleBlocks:
    """The block length that a source asks a shuffle to use."""

    rows: int  # rows per block
    held: int  # blocks that fit in the memory budget

    @property
    def max_open_blocks(self) -> int:
        """Number of blocks that a shuffle mixes at a time.

        This is at most half of the blocks that fit in memory. The other half is for prefetched blocks.
        """
        return max(2, min(self.held // 2, max(_OPEN_BLOCKS, _OPEN_ROWS // self.rows)))


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """The chunks of a source: rows per chunk, and bytes per row."""

    rows: int = 1  # rows per chunk; 1 if rows are read one by one
    row_nbytes: int = 0  # bytes per row, decompressed
    notes: tuple[str, ...] = ()  # remarks about the chunks, for `explain()`

    def shuffle_blocks(self, length: int, max_held_nbytes: int) -> ShuffleBlocks | None:
        """Return the blocks for a shuffle of `length` rows.

        Return None if a shuffle needs no blocks: all rows fit in memory, or rows are read one by one.
        """
        if self.rows <= 1 or length * self.row_nbytes <= max_held_nbytes:
            return None
        return ShuffleBlocks(self.rows, held=max_held_nbytes // (self.rows * self.row_nbytes))

    def explain(self, length: int, blocks: ShuffleBlocks | None) -> Decision:
        """Return the decision on reads that `Feed.explain()` prints."""
        if blocks is None:
            why = f"all chunks fit in memory ({format_nbytes(length * self.row_nbytes)}): each is decompressed once"
        else:
            held = format_nbytes(blocks.held * self.rows * self.row_nbytes)
            why = (
                f"at most {held} of chunks stay in memory, so a shuffle mixes {blocks.max_open_blocks} chunks at a "
                "time unless shuffle() gets block="
            )
        return Decision("reads", f"chunks of {self.rows} rows", "; ".join([why, *self.notes]))
