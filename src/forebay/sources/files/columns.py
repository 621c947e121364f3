"""A source that reads one or more columns of one file.

Each column is one leaf of the rows. For example, a `MappedColumn` is mapped into memory, and a `ChunkedColumn` is
decompressed in chunks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.arrays import locate_extents, make_gather, memory_region
from forebay.sources.files.chunked import ChunkedColumn, chunk_policy_of, share_budget
from forebay.sources.files.mapped import PathName, closed_error
from forebay.sources.files.match_spec import match_spec

__all__ = [
    "ColumnProtocol",
    "ColumnsSource",
    "FileHandle",
    "MappedColumn",
    "common_length",
    "dict_structure",
    "select_members",
    "validate_names",
]


class ColumnProtocol(Protocol):
    """The rows of one leaf. Members have the same meaning as in `AbstractSource`."""

    @property
    def spec(self) -> ArraySpec: ...
    @property
    def length(self) -> int: ...
    @property
    def held_nbytes(self) -> int: ...
    def gather(self, rows: Rows, out: Array) -> None: ...
    def memory(self) -> list[MemoryRegion]: ...
    def memory_extents(self) -> list[MemoryExtent]: ...


class MappedColumn:
    """A leaf that is one array in a mapped file."""

    held_nbytes = 0  # a mapped file needs no memory for decompressed rows

    def __init__(self, array: Array) -> None:
        self.spec, self.length = ArraySpec(array.shape[1:], array.dtype), len(array)
        self.gather = make_gather(array)
        self._array = array

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(self._array)]

    def memory_extents(self) -> list[MemoryExtent]:
        # The pages of a mapping hold only the file, so Forebay may page-lock all of them.
        return list(chain(*locate_extents([self._array], own_pages=True)))


@dataclass(frozen=True, slots=True)
class FileHandle:
    """An open file. `check()` raises an error if the file changed."""

    path: Path
    check: Callable[[], None]
    close: Callable[[], None]


class ColumnsSource(AbstractSource):
    """Rows whose leaves are columns of one file."""

    immutable = True

    def __init__(
        self,
        file: FileHandle,
        columns: Sequence[ColumnProtocol],
        structure: Structure,
        *,
        spec: Tree | None,
        max_held_nbytes: int,
    ) -> None:
        names = structure.paths
        self._length = common_length(file.path, [column.length for column in columns], names)
        self.specs = tuple(column.spec for column in columns)
        for column_spec, name in zip(self.specs, names, strict=True):
            column_spec.check(name)
        self.structure = match_spec(file.path, self.specs, structure, spec)
        self._file = file
        self._columns: list[ColumnProtocol] = list(columns)
        chunked = [column for column in columns if isinstance(column, ChunkedColumn)]
        share_budget(chunked, max_held_nbytes)
        self.chunk_policy = chunk_policy_of(chunked)
        self.shuffle_blocks = self.chunk_policy.shuffle_blocks(self._length, max_held_nbytes)
        self.read_decision = Decision("reads", "in place", "the mapped file stores the rows uncompressed")
        if chunked:
            self.read_decision = self.chunk_policy.explain(self._length, self.shuffle_blocks)

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        return sum(column.held_nbytes for column in self._columns)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        columns = self._columns
        if not columns:
            raise closed_error(self._file.path)
        self._file.check()
        for column, target in zip(columns, out, strict=True):
            column.gather(rows, target)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        columns = self._columns
        if not columns:
            raise closed_error(self._file.path)
        self._file.check()
        out = [self.specs[leaf].empty(row_count(rows)) for leaf in leaves]
        for leaf, array in zip(leaves, out, strict=True):
            columns[leaf].gather(rows, array)
        return out

    def memory(self) -> list[MemoryRegion]:
        regions = [column.memory() for column in self._columns]
        return list(chain(*regions)) if all(regions) else []

    def memory_extents(self) -> list[list[MemoryExtent]]:
        extents = [column.memory_extents() for column in self._columns]
        return extents if all(extents) else []

    def close(self) -> None:
        """Close the file and release the decompressed chunks.

        A thread that is gathering rows keeps the chunks alive until it has finished.
        """
        self._columns = []
        self._file.close()


def dict_structure(names: Sequence[str]) -> Structure:
    """Return the structure of a dict with one leaf for each name."""
    return flatten(dict.fromkeys(names, 0))[1]


def select_members(
    path: Path, kind: str, available: Sequence[str], *, members: Sequence[str] | None, spec: Tree | None
) -> list[str]:
    """Return the names of the columns to read.

    They are `members` if it is not None, else the leaves of the spec, else all columns of the file (`available`). The
    leaf `train.x` of a nested spec means the column `train/x`, unless the file has a column named `train.x`.
    """
    if members is None:
        paths = list(available) if spec is None else as_specs(spec)[1].paths
        members = [name if name in available else name.replace(".", "/") for name in paths]
    validate_names(path, kind, members, available)
    return list(members)


def validate_names(path: PathName, kind: str, requested: Sequence[str], available: Sequence[str]) -> None:
    """Raise SourceError if no name is requested, or if the file lacks a requested name.

    `kind` is what this file format calls a named array, such as "dataset" or "column". The error message uses this
    word.
    """
    names = ", ".join(map(repr, available))
    if not available:
        raise SourceError(f"{path} has no {kind}s. Choose another file.")
    if not requested:
        raise SourceError(f"no {kind}s of {path} were requested. Choose from: {names}.")
    for name in requested:
        if name not in available:
            raise SourceError(f"{path} has no {kind} {name!r}. It has {names}. Choose one of them.")


def common_length(path: PathName, lengths: Sequence[int], names: Sequence[str]) -> int:
    """Return the number of rows. Raise SpecError if it differs between columns."""
    if len(set(lengths)) != 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in zip(names, lengths, strict=True))
        raise SpecError(
            f"the parts of {path} differ in their number of rows: {listed}. Choose parts of equal length "
            "with members= or columns=."
        )
    return lengths[0]
