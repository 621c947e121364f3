"""Shuffle blocks of a source that stores rows in chunks: their length and number."""

from dataclasses import dataclass

from forebay.core.decision import Decision
from forebay.core.spec import format_nbytes

__all__ = ["ChunkPolicy", "ShuffleBlocks"]

_OPEN_BLOCKS = 16  # blocks that a shuffle opens together, if they fit in half of the budget for held bytes
_OPEN_ROWS = 1 << 16  # if _OPEN_BLOCKS blocks have fewer rows, a shuffle opens more blocks, up to this many rows


@dataclass(frozen=True, slots=True)
class ShuffleBlocks:
    """The blocks that a source proposes for a shuffle."""

    rows: int  # rows per block
    held: int  # blocks that fit in the budget for held bytes

    @property
    def max_open_blocks(self) -> int:
        """The number of blocks that a shuffle opens together.

        It is at most half of the blocks that fit in memory, but at least 2. The other half is for prefetched blocks.
        """
        return max(2, min(self.held // 2, max(_OPEN_BLOCKS, _OPEN_ROWS // self.rows)))


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """The chunk size of a source, which is also the length of its shuffle blocks."""

    rows: int = 1  # rows per chunk; 1 if the source can read single rows
    row_nbytes: int = 0  # bytes per row, decompressed
    notes: tuple[str, ...] = ()  # remarks about the chunks, for `explain()`

    def shuffle_blocks(self, length: int, max_held_nbytes: int) -> ShuffleBlocks | None:
        """Return the blocks for a shuffle of `length` rows, or None for an exact shuffle.

        A shuffle is exact if all rows fit in `max_held_nbytes` of memory, or if the source can read single rows.
        """
        if self.rows <= 1 or length * self.row_nbytes <= max_held_nbytes:
            return None
        return ShuffleBlocks(self.rows, held=max_held_nbytes // (self.rows * self.row_nbytes))

    def explain(self, length: int, blocks: ShuffleBlocks | None) -> Decision:
        """Return the decision about reading chunks, for `Feed.explain()`."""
        if self.rows <= 1:
            why = "a chunk is a single row, so a shuffle reads rows in any order"
        elif blocks is None:
            why = f"all chunks fit in memory ({format_nbytes(length * self.row_nbytes)}): each is decompressed once"
        elif blocks.held < blocks.max_open_blocks:
            why = (
                f"fewer than {blocks.max_open_blocks} chunks of {format_nbytes(self.rows * self.row_nbytes)} fit in "
                "memory, so a shuffle decompresses chunks many times; pass a larger max_held_bytes"
            )
        else:
            limit = format_nbytes(blocks.held * self.rows * self.row_nbytes)
            why = (
                f"at most {limit} of chunks stay in memory, so a shuffle mixes {blocks.max_open_blocks} chunks at a "
                "time unless shuffle() gets block="
            )
        return Decision("reads", f"chunks of {self.rows} rows", "; ".join([why, *self.notes]))
