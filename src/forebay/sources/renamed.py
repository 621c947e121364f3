"""`rename_source`: gives the fields of a source new names, and changes nothing else."""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from forebay.core.decision import Decision
from forebay.core.ragged import Ragged
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, Closeable, FileExtent, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.sources.arrays import ArraySource
from forebay.sources.sparse import SparseSource

__all__ = ["RenamedSource", "rename_source"]

# Attributes of `AbstractSource` that do not change while a source is open.
_ATTRIBUTES = (
    *("immutable", "version", "shuffle_blocks", "chunk_policy", "decodes_rows", "encoded_images"),
    *("why_no_device_decoder", "error_limit", "can_prefetch", "decompressed_nbytes", "scratch_row_nbytes"),
    *("max_scratch_nbytes", "identify", "row_by_row", "needs_cluster", "read_decision", "cached_transforms"),
    *("class_names",),
)


def rename_source(source: AbstractSource, structure: Structure) -> AbstractSource:
    """Return a source with the rows of `source`, whose leaves get the names in `structure`.

    An `ArraySource` or `SparseSource` is copied, because other modules check for these types. The copy shares the
    arrays.
    """
    if not isinstance(source, ArraySource | SparseSource):
        return RenamedSource(source, structure)
    renamed = copy.copy(source)
    renamed.structure = structure
    return renamed


class RenamedSource(AbstractSource):
    """Wraps a source to give its leaves new names. It forwards all calls."""

    def __init__(self, inner: AbstractSource, structure: Structure) -> None:
        self._inner: AbstractSource = inner._inner if isinstance(inner, RenamedSource) else inner
        self.specs, self.structure = tuple(inner.specs), structure
        for name in _ATTRIBUTES:
            setattr(self, name, getattr(self._inner, name))
        if self._inner.for_device_decoder is not None:
            self.for_device_decoder = partial(_open_renamed, self._inner.for_device_decoder, structure)

    def __len__(self) -> int:
        return len(self._inner)

    def __reduce__(self) -> tuple[Any, ...]:
        return RenamedSource, (self._inner, self.structure)

    @property
    def infers_specs(self) -> bool:
        return self._inner.infers_specs

    @property
    def stored_rows(self) -> tuple[Sequence[ArraySpec], Structure]:
        return self._inner.stored_rows

    @property
    def plan_version(self) -> int:
        return self._inner.plan_version

    @property
    def held_nbytes(self) -> int:
        return self._inner.held_nbytes

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        self._inner.gather(rows, out)

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        return self._inner.gather_rows(rows)

    def gather_columns(self, rows: Rows, fill_values: Sequence[Any]) -> list[Array | Ragged] | None:
        return self._inner.gather_columns(rows, fill_values)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        return self._inner.gather_leaves(leaves, rows)

    def row_lengths(self, leaf: int) -> Array | None:
        return self._inner.row_lengths(leaf)

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        return self._inner.prefetch(upcoming)

    def decompress(self) -> None:
        self._inner.decompress()

    def reopener(self) -> Callable[[], AbstractSource] | None:
        reopen = self._inner.reopener()
        return None if reopen is None else partial(_open_renamed, reopen, self.structure)

    def windows(self, rows: slice, length: int, stride: int) -> AbstractSource | None:
        windows = self._inner.windows(rows, length, stride)
        return None if windows is None else rename_source(windows, self.structure)

    def memory(self) -> Sequence[MemoryRegion]:
        return self._inner.memory()

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        return self._inner.memory_extents()

    def file_extents(self) -> Sequence[Sequence[FileExtent]]:
        return self._inner.file_extents()

    def counters(self) -> dict[str, int]:
        return self._inner.counters()

    def decisions(self) -> Sequence[Decision]:
        return self._inner.decisions()

    def close(self) -> None:
        self._inner.close()


def _open_renamed(open_source: Callable[[], AbstractSource], structure: Structure) -> AbstractSource:
    return rename_source(open_source(), structure)
