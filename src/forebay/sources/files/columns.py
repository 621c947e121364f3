"""One file whose leaves are each gathered in a way of their own: mapped, in pieces, or unpacked chunk by chunk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from forebay.core.decision import Decision
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.arrays import extents_of, gather_leaf, memory_region
from forebay.sources.files.chunk_policy import chunk_policy_of, share
from forebay.sources.files.chunked import ChunkedLeaf
from forebay.sources.files.match_spec import fit_spec

__all__ = ["Leaf", "LeavesSource", "MappedLeaf", "OpenFile", "check_chosen", "choose_members", "named"]


class Leaf(Protocol):
    """The rows of one leaf."""

    @property
    def spec(self) -> ArraySpec: ...
    @property
    def length(self) -> int: ...
    @property
    def held_nbytes(self) -> int: ...
    def gather(self, rows: Rows, out: Array) -> None: ...
    def memory(self) -> list[MemoryRegion]: ...


class MappedLeaf:
    """A leaf that lies in one piece in a mapped file."""

    held_nbytes = 0

    def __init__(self, array: Array) -> None:
        self.spec, self.length = ArraySpec(array.shape[1:], array.dtype), len(array)
        self.gather = gather_leaf(array)
        self._array = array

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(self._array)]

    def extents(self) -> list[MemoryExtent]:
        return list(chain(*extents_of([self._array], own_pages=True)))


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What a source asks of the file below: is it still whole, and to be let go of."""

    path: Path
    check: Callable[[], None]
    close: Callable[[], None]


class LeavesSource(AbstractSource):
    """The leaves of one file, row by row."""

    immutable = True  # what lies in a file stays as it is

    def __init__(
        self, file: OpenFile, leaves: Sequence[Leaf], structure: Structure, *, spec: Tree | None, max_held_nbytes: int
    ) -> None:
        names = structure.paths
        self._length = _common_length(file.path, leaves, names)
        self.specs = tuple(leaf.spec for leaf in leaves)
        for leaf, name in zip(self.specs, names, strict=True):
            leaf.check(name)
        self.structure = fit_spec(file.path, self.specs, structure, spec)
        self._file = file
        self._leaves: list[Leaf] = list(leaves)
        chunked = [leaf for leaf in leaves if isinstance(leaf, ChunkedLeaf)]
        share(chunked, max_held_nbytes)
        self.chunk_policy = chunk_policy_of(chunked)
        self.shuffle_blocks = self.chunk_policy.shuffle_blocks(self._length, max_held_nbytes)
        self.read_decision = Decision("reads", "in place", "rows lie in the mapped file as they are")
        if chunked:
            self.read_decision = self.chunk_policy.explain(self._length, self.shuffle_blocks)

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        """Memory that unpacked chunks take now."""
        return sum(leaf.held_nbytes for leaf in self._leaves)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        leaves = self._leaves
        if not leaves:
            raise SourceError(f"{self._file.path} was closed: open it again to read from it.")
        self._file.check()
        for leaf, target in zip(leaves, out, strict=True):
            leaf.gather(rows, target)

    def memory(self) -> list[MemoryRegion]:
        """Where the rows lie, if all of them lie in the file as they are."""
        regions = [leaf.memory() for leaf in self._leaves]
        return list(chain(*regions)) if all(regions) else []

    def memory_extents(self) -> list[list[MemoryExtent]]:
        found: list[list[MemoryExtent]] = [leaf.extents() if hasattr(leaf, "extents") else [] for leaf in self._leaves]
        return found if all(found) else []

    def close(self) -> None:
        """Let go of the file and of what was unpacked, once the last gather under way is done."""
        self._leaves = []
        self._file.close()


def named(names: Sequence[str]) -> Structure:
    """A dict of leaves."""
    return flatten(dict.fromkeys(names, 0))[1]


def choose_members(
    path: Path, kind: str, found: Sequence[str], *, members: Sequence[str] | None, spec: Tree | None
) -> list[str]:
    """The names that are asked for, or those of the spec's leaves, or all. `train.x` of a nested spec is `train/x`."""
    if members is None:
        paths = list(found) if spec is None else as_specs(spec)[1].paths
        members = [name if name in found else name.replace(".", "/") for name in paths]
    check_chosen(path, kind, members, found)
    return list(members)


def check_chosen(path: Path, kind: str, chosen: Sequence[str], found: Sequence[str]) -> None:
    """Refuse names that the file has not; `kind` is what the format calls its parts."""
    held = ", ".join(map(repr, found)) or f"no {kind}s at all"
    if not chosen:
        raise SourceError(f"no {kind}s of {path} were asked for: it has {held}.")
    for name in chosen:
        if name not in found:
            raise SourceError(f"{path} has no {kind} {name!r}: it has {held}.")


def _common_length(path: Path, leaves: Sequence[Leaf], names: Sequence[str]) -> int:
    lengths = {name: leaf.length for name, leaf in zip(names, leaves, strict=True)}
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise SpecError(
            f"all parts of {path} that are fed together must have the same number of rows, but {told}. "
            "Choose those that go together by their names."
        )
    return leaves[0].length
