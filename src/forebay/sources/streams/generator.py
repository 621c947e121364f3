"""Rows from a generator: read one after the other, checked against a spec, copied as they come."""

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from forebay.core.rows import row_views
from forebay.core.source import AbstractStream
from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["RowReader", "RowStream"]


class RowStream(AbstractStream):
    """Rows that `make()` gives, called anew for each pass.

    Where the iterator has `state_dict` and `load_state_dict`, resuming uses them; otherwise rows are read again and
    passed over. Without a spec, the first row says what rows look like; it is not lost.
    """

    def __init__(self, make: Callable[[], Iterable[Tree]], spec: Tree | None) -> None:
        if not callable(make):
            raise SpecError(
                f"from_generator() needs a function that makes the generator, got {type(make).__name__}: those can "
                "be read only once, and every epoch needs a new one. Pass the function itself, without calling it."
            )
        self._make = make
        self._ahead: tuple[Iterator[Tree], list[Tree]] | None = (
            None  # a pass begun to see its first rows, and those rows
        )
        self._given: Iterator[Tree] | None = None  # what was made last
        self._inferred = spec is None
        self.specs, self.structure = as_specs(spec) if spec is not None else self._infer()
        for row, name in zip(self.specs, self.structure.paths, strict=True):
            row.check(name)

    def _infer(self) -> tuple[tuple[ArraySpec, ...], Structure]:
        first = self._look_ahead(1)
        if not first:
            raise SourceError("the generator gave no row, so there is nothing to feed and no spec: pass spec=.")
        leaves, structure = flatten(first[0])
        return tuple(_spec_of(leaf) for leaf in leaves), structure

    def sample(self, rows: int) -> list[list[Array]]:
        """The first rows of a pass, to trace maps with; they are given again when the pass is read."""
        return RowReader(iter(self._look_ahead(rows)), self.specs, self.structure).rows(rows)

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "RowReader":
        if self._ahead is not None and state is None:
            (iterator, rows), self._ahead = self._ahead, None
            return RowReader(iterator, self.specs, self.structure, ahead=rows)
        iterator = self._begin()
        if state is not None:
            if not hasattr(iterator, "load_state_dict"):
                raise SourceError(
                    "the state holds the generator's own state, but its iterator has no load_state_dict()."
                )
            iterator.load_state_dict(state)
        return RowReader(iterator, self.specs, self.structure)

    def _begin(self) -> Iterator[Tree]:
        iterator = iter(self._make())
        if iterator is self._given and isinstance(iterator, Generator):
            raise SourceError(
                "from_generator() was given the same generator again, which was read already: let the function make a "
                "new one each time it is called."
            )
        self._given = iterator
        return iterator

    def loosened(self) -> "RowStream":
        """The same stream with rows of any length: what padding asks for, where no spec says otherwise."""
        loose = copy.copy(self)
        self._ahead = None  # rows looked at ahead are read once, by one of the two
        if self._inferred:
            loose.specs = tuple(ArraySpec((None,) * len(spec.shape), spec.dtype) for spec in self.specs)
        return loose

    def _look_ahead(self, count: int) -> list[Tree]:
        iterator, rows = self._ahead or (self._begin(), [])
        # Copied, because a generator may fill and yield the same array again and again.
        rows = [*rows, *(_copied(row) for row in islice(iterator, count - len(rows)))]
        self._ahead = (iterator, rows)
        return rows[:count]

    def describe(self) -> tuple[Any, ...]:
        return ("rows",)

    def close(self) -> None:
        self._ahead = None


class RowReader:
    """One pass over a generator's rows."""

    def __init__(
        self, iterator: Iterator[Tree], specs: Sequence[ArraySpec], structure: Structure, *, ahead: Sequence[Tree] = ()
    ) -> None:
        self._iterator = iterator
        self._rows = chain(ahead, iterator) if ahead else iterator
        self._ahead_rows = len(ahead)
        self._specs, self._structure, self._names = specs, structure, structure.paths
        self._flat = structure.kind is None
        self._row = 0

    def read(self, out: Sequence[Array | list[Array]]) -> int:
        """Copy rows into `out` until it is full or the generator ends; leaves may be given as ready views of rows."""
        read = self._read_lone if self._flat else self._read_tree
        count = read([leaf if isinstance(leaf, list) else row_views(leaf) for leaf in out])
        self._row += count
        return count

    def rows(self, count: int) -> list[list[Array]]:
        """So many rows as lists of leaves, checked, for rows that differ in shape."""
        found = []
        for tree in islice(self._rows, count):
            found.append(self._checked(tree, self._row))
            self._row += 1
        return found

    def skip(self, rows: int) -> int:
        skipped = sum(1 for _ in islice(self._rows, rows))
        self._row += skipped
        return skipped

    def state_dict(self) -> dict[str, Any] | None:
        state = getattr(self._iterator, "state_dict", None)
        if state is None or self._row < self._ahead_rows:
            return None  # it is ahead of what was read here, so resuming reads from the beginning
        taken: dict[str, Any] = copy.deepcopy(state())  # it may be the very dict that the iterator goes on changing
        return taken

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def _read_lone(self, out: Sequence[list[Array]]) -> int:
        targets, nbytes, dtype, ndarray = out[0], self._specs[0].nbytes, self._specs[0].dtype, np.ndarray
        count, row = 0, None
        try:
            # Targets come first: zip takes from them before the generator, so no row is taken and lost when they end.
            for target, row in zip(targets, self._rows, strict=False):
                if row.__class__ is ndarray and row.dtype is dtype and row.nbytes == nbytes:
                    target[...] = row  # refuses another shape of as many bytes, but for axes of length one in front
                else:
                    target[...] = self._checked(row, self._row + count)[0]
                count += 1
        except ValueError:
            if row is not None:
                self._checked(row, self._row + count)
            raise  # the generator's own
        return count

    def _read_tree(self, out: Sequence[list[Array]]) -> int:
        count = 0
        for *targets, tree in zip(*out, self._rows, strict=False):
            for target, leaf in zip(targets, self._checked(tree, self._row + count), strict=True):
                target[...] = leaf
            count += 1
        return count

    def _checked(self, tree: Tree, row: int) -> list[Array]:
        try:
            leaves = self._structure.flatten_like(tree)
        except SpecError as error:
            raise SpecError(f"row {row} of the generator does not match the spec: {error}") from None
        return [_fit(leaf, spec, name, row) for leaf, spec, name in zip(leaves, self._specs, self._names, strict=True)]


def _copied(row: Tree) -> Tree:
    leaves, structure = flatten(row)
    return structure.unflatten([np.array(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _spec_of(leaf: Any) -> ArraySpec:
    if type(leaf) in (int, float, bool):
        return ArraySpec((), type(leaf))
    array = np.asarray(leaf)
    return ArraySpec(array.shape, array.dtype)


def _fit(leaf: Any, spec: ArraySpec, name: str, row: int) -> Array:
    """A leaf as an array of the spec, if that loses nothing: Python numbers take its type, arrays must have it."""
    try:
        array = np.asarray(leaf) if hasattr(leaf, "dtype") else np.asarray(leaf, dtype=_loose(leaf, spec))
    except (OverflowError, ValueError) as error:
        raise SpecError(f"row {row} of the generator does not fit {spec} in {name!r}: {error}.") from None
    fits = len(array.shape) == len(spec.shape) and all(
        want is None or want == got for want, got in zip(spec.shape, array.shape, strict=True)
    )
    if not fits or array.dtype != spec.dtype:
        got = ArraySpec(array.shape, array.dtype)
        raise SpecError(f"row {row} of the generator does not match the spec in {name!r}: expected {spec}, got {got}.")
    return array


def _loose(leaf: Any, spec: ArraySpec) -> np.dtype[Any] | None:
    """Python numbers have no dtype of their own: they take the spec's where that is the same kind or wider."""
    natural = np.asarray(leaf).dtype
    return spec.dtype if np.can_cast(natural, spec.dtype, "same_kind") else None
