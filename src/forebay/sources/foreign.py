"""Sources of other packages as `AbstractSource`.

Forebay 0.1 accepted any object with the methods of `Source`, and looked for optional attributes by name, such as
`fixed` or `foresee`. This module still accepts such objects. It is the only one that knows these names.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.rows import Rows
from forebay.core.source import (
    AbstractSource,
    Closeable,
    FileExtent,
    MemoryExtent,
    MemoryRegion,
    MultiFileOpener,
    Source,
)
from forebay.core.spec import Array
from forebay.errors import SpecError
from forebay.sources.frame_columns import library_of_frame
from forebay.sources.items import ItemSource
from forebay.sources.sparse import is_sparse

__all__ = ["ForeignSource", "adapt_source", "find_multi_file_opener"]

Value = TypeVar("Value")


def adapt_source(source: Any) -> AbstractSource:
    """Return the source itself if it is an `AbstractSource`, else a source that wraps it."""
    if isinstance(source, AbstractSource):
        return source
    if library_of_frame(source) is not None:
        raise SpecError(f"from_source() got a {type(source).__name__}, which has columns, not rows. Use from_frame().")
    if is_sparse(source):
        raise SpecError(f"from_source() got a {type(source).__name__}. Use from_arrays(), which reads sparse matrices.")
    if _is_keras_dataset(source):
        raise SpecError(
            f"from_source() got a {type(source).__name__}, and a PyDataset yields batches, not rows. Use "
            "fb.from_batches(dataset), or fb.from_source(rows) with an object whose __getitem__ returns one row."
        )
    return ForeignSource(source) if isinstance(source, Source) else ItemSource(source)


def _is_keras_dataset(source: Any) -> bool:
    """Return whether the source is a `PyDataset` of Keras, without importing Keras."""
    return any(kind.__name__ == "PyDataset" and kind.__module__.startswith("keras.") for kind in type(source).__mro__)


def find_multi_file_opener(opener: Any) -> Callable[..., Any] | None:
    """Return an opener's function for many files, or None if it has no such function.

    `opener` is the plug-in for one file format. The function opens all files as one source.
    """
    if isinstance(opener, MultiFileOpener):
        return opener.open_many
    open_many: Callable[..., Any] | None = getattr(opener, "together", None)  # its name in version 0.1
    return open_many


class ForeignSource(AbstractSource):
    """Wraps a source that follows the source protocol of Forebay 0.1.

    `__init__` reads the optional attributes of the wrapped source once, except for `held_nbytes`.
    """

    can_prefetch = True

    def __init__(self, source: Source) -> None:
        self._source: Any = source
        self.specs, self.structure = source.specs, source.structure
        self.immutable = bool(self._get_optional("fixed", False))
        self.version = str(self._get_optional("version", ""))
        self.needs_cluster = bool(self._get_optional("needs_cluster", False))
        self.read_decision: Decision | None = self._get_optional("reads", None)
        self.shuffle_blocks = _as_shuffle_blocks(self._get_optional("blocks", None))
        self.chunk_policy = _as_chunk_policy(self._get_optional("chunking", None))
        self.decompressed_nbytes = int(self._get_optional("unpacked_nbytes", 0))
        self._reopen: Callable[[], Any] | None = self._get_optional("reopen", None)
        self._gather_rows: Callable[[Rows], list[list[Array]]] = self._get_optional("gather_rows", super().gather_rows)
        self._prefetch: Callable[[Iterator[Rows]], Closeable | None] = self._get_optional("foresee", super().prefetch)
        self._decompress: Callable[[], None] = self._get_optional("unpack", super().decompress)
        self._counters: Callable[[], dict[str, int]] = self._get_optional("counts", super().counters)
        self._decisions: Callable[[], Sequence[Decision]] = self._get_optional("reasons", super().decisions)
        self._memory_extents: Callable[[], Sequence[Sequence[MemoryExtent]]] = self._get_optional("extents", list)
        self._file_extents: Callable[[], Sequence[Sequence[FileExtent]]] = self._get_optional("stored", list)

    def __len__(self) -> int:
        return len(self._source)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        self._source.gather(rows, out)

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        return self._gather_rows(rows)

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        return self._prefetch(upcoming)

    def decompress(self) -> None:
        self._decompress()

    def reopener(self) -> Callable[[], AbstractSource] | None:
        reopen = self._reopen
        return None if reopen is None else lambda: adapt_source(reopen())

    @property
    def held_nbytes(self) -> int:
        return int(self._get_optional("held_nbytes", 0))  # not stored, because it changes while threads read rows

    def memory(self) -> Sequence[MemoryRegion]:
        regions: Sequence[MemoryRegion] = self._source.memory()
        return regions

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        return self._memory_extents()

    def file_extents(self) -> Sequence[Sequence[FileExtent]]:
        return self._file_extents()

    def counters(self) -> dict[str, int]:
        return self._counters()

    def decisions(self) -> Sequence[Decision]:
        return self._decisions()

    def close(self) -> None:
        self._source.close()

    def _get_optional(self, name: str, default: Value) -> Value:
        value: Value = getattr(self._source, name, default)
        return value


def _as_shuffle_blocks(blocks: Any) -> ShuffleBlocks | None:
    return None if blocks is None else ShuffleBlocks(blocks.rows, blocks.held)


def _as_chunk_policy(chunking: Any) -> ChunkPolicy:
    return ChunkPolicy() if chunking is None else ChunkPolicy(chunking.rows, chunking.row_nbytes, chunking.notes)
