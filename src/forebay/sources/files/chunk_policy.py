"""How rows are read that are stored by chunk: what a shuffle should make of it, and what `explain()` says."""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.core.decision import Reason
from forebay.core.source import Blocks
from forebay.core.spec import format_nbytes
from forebay.sources.files.chunked import ChunkedLeaf

__all__ = ["Chunking", "chunking_of", "share"]

_HEAVY = 8  # leaves smaller than the largest by this much have no say in how rows are read


@dataclass(frozen=True, slots=True)
class Chunking:
    """Rows of a chunk, and what those leaves of a row take that are stored by chunk."""

    rows: int = 1  # which means one by one
    row_nbytes: int = 0
    notes: tuple[str, ...] = ()

    def blocks(self, length: int, max_held_nbytes: int) -> Blocks | None:
        """How to shuffle so many rows, where not all of them can be held."""
        if self.rows <= 1 or length * self.row_nbytes <= max_held_nbytes:
            return None
        return Blocks(self.rows, held=max_held_nbytes // (self.rows * self.row_nbytes))

    def told(self, length: int, blocks: Blocks | None) -> Reason:
        """What `explain()` says of it."""
        if blocks is None:
            why = f"each is unpacked once, since all {format_nbytes(length * self.row_nbytes)} of them may be held"
        else:
            held = format_nbytes(blocks.held * self.rows * self.row_nbytes)
            why = f"at most {held} of them are held, so a shuffle mixes {blocks.mix} at a time unless block= is given"
        return Reason("reads", f"chunks of {self.rows} rows", "; ".join([why, *self.notes]))


def chunking_of(leaves: Sequence[ChunkedLeaf]) -> Chunking:
    """The longest chunk of the leaves that matter: labels may well have chunks as long as the file."""
    heaviest = max((leaf.nbytes for leaf in leaves), default=0)
    rows = max((leaf.chunk_rows for leaf in leaves if leaf.nbytes * _HEAVY >= heaviest), default=1)
    notes = tuple(leaf.note for leaf in leaves if leaf.note)
    return Chunking(rows, sum(leaf.spec.nbytes for leaf in leaves), notes)


def share(leaves: Sequence[ChunkedLeaf], max_held_nbytes: int) -> None:
    """Let small leaves be held whole, and the others share what is left by the size of their rows."""
    left, waiting = max_held_nbytes, sorted(leaves, key=lambda leaf: leaf.nbytes)
    while waiting and waiting[0].nbytes <= left // len(waiting):
        leaf = waiting.pop(0)
        leaf.hold(leaf.nbytes)
        left -= leaf.nbytes
    row_nbytes = sum(leaf.spec.nbytes for leaf in waiting)
    for leaf in waiting:
        leaf.hold(left * leaf.spec.nbytes // row_nbytes)
