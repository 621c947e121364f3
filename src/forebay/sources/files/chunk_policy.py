"""How chunked columns of one file share a memory budget."""

from collections.abc import Sequence

from forebay.core.chunk_policy import ChunkPolicy
from forebay.sources.files.chunked import ChunkedLeaf

__all__ = ["chunk_policy_of", "share"]

_HEAVY = 8  # leaves smaller than the largest by this much have no say in how rows are read


def chunk_policy_of(leaves: Sequence[ChunkedLeaf]) -> ChunkPolicy:
    """The longest chunk of the leaves that matter: labels may well have chunks as long as the file."""
    heaviest = max((leaf.nbytes for leaf in leaves), default=0)
    rows = max((leaf.chunk_rows for leaf in leaves if leaf.nbytes * _HEAVY >= heaviest), default=1)
    notes = tuple(leaf.note for leaf in leaves if leaf.note)
    return ChunkPolicy(rows, sum(leaf.spec.nbytes for leaf in leaves), notes)


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
