"""How rows that a format stores in chunks are held in memory and shuffled."""

from dataclasses import dataclass

from forebay.core.decision import Decision
from forebay.core.spec import format_nbytes

__all__ = ["ChunkPolicy", "ShuffleBlocks"]

_OPEN_BLOCKS = 16
_OPEN_ROWS = 1 << 16  # a shuffle opens more small blocks until it mixes this number of rows


@dataclass(frozen=True, slots=True)
class ShuffleBlocks:
    """Block size for a shuffle of rows that are read block by block."""

    rows: int  # of one block
    held: int  # blocks that fit in the memory budget

    @property
    def max_open_blocks(self) -> int:
        """Number of blocks that a shuffle mixes at a time.

        At most half of the held blocks are mixed, because the next blocks are read meanwhile.
        """
        return max(2, min(self.held // 2, max(_OPEN_BLOCKS, _OPEN_ROWS // self.rows)))


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """The chunk length of a source, and the row size in its chunks."""

    rows: int = 1  # of one chunk; 1 if rows are read one by one
    row_nbytes: int = 0  # decompressed
    notes: tuple[str, ...] = ()

    def shuffle_blocks(self, length: int, max_held_nbytes: int) -> ShuffleBlocks | None:
        """Return the blocks for a shuffle, or None if all rows fit."""
        if self.rows <= 1 or length * self.row_nbytes <= max_held_nbytes:
            return None
        return ShuffleBlocks(self.rows, held=max_held_nbytes // (self.rows * self.row_nbytes))

    def explain(self, length: int, blocks: ShuffleBlocks | None) -> Decision:
        """Return how chunks are read, for `explain()`."""
        if blocks is None:
            why = f"all chunks fit in memory ({format_nbytes(length * self.row_nbytes)}): each is decompressed once"
        else:
            held = format_nbytes(blocks.held * self.rows * self.row_nbytes)
            why = (
                f"at most {held} of chunks stay in memory, so a shuffle mixes {blocks.max_open_blocks} chunks at a "
                "time unless block= is given"
            )
        return Decision("reads", f"chunks of {self.rows} rows", "; ".join([why, *self.notes]))
