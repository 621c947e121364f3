"""`WrappingSource`: the base class of sources that make rows from those of one source."""

import math
from collections.abc import Sequence

from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.source import AbstractSource

__all__ = ["WrappingSource"]


class WrappingSource(AbstractSource):
    """Copies the attributes of its inner source, except for those that describe the rows.

    `inner_rows` is the number of rows of the inner source that each further row of this source needs on average. For
    windows, it is the stride.
    """

    def __init__(self, inner: AbstractSource, *, inner_rows: float) -> None:
        self._inner = inner
        self.immutable, self.version, self.needs_cluster = inner.immutable, inner.version, inner.needs_cluster
        self.read_decision, self.decompressed_nbytes = inner.read_decision, inner.decompressed_nbytes
        self.decodes_rows, self.row_by_row, self.class_names = inner.decodes_rows, inner.row_by_row, inner.class_names
        self.cached_transforms = inner.cached_transforms
        self.scratch_row_nbytes = math.ceil(inner.scratch_row_nbytes * inner_rows)
        self.max_scratch_nbytes = inner.max_scratch_nbytes
        blocks = inner.shuffle_blocks
        self.shuffle_blocks = blocks and ShuffleBlocks(max(1, int(blocks.rows // inner_rows)), blocks.held)

    @property
    def infers_specs(self) -> bool:
        return self._inner.infers_specs

    @property
    def plan_version(self) -> int:
        return self._inner.plan_version

    def counters(self) -> dict[str, int]:
        return self._inner.counters()

    def decisions(self) -> Sequence[Decision]:
        return self._inner.decisions()

    def decompress(self) -> None:
        self._inner.decompress()

    @property
    def held_nbytes(self) -> int:
        return self._inner.held_nbytes

    def close(self) -> None:
        self._inner.close()
