"""A stream of the rows that a generator yields."""

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from forebay.core.rows import row_views
from forebay.core.source import AbstractStream
from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["GeneratorReader", "RowStream"]


class RowStream(AbstractStream):
    """A stream that calls `make()` for each pass, and iterates the result.

    If the iterator of the result has `state_dict` and `load_state_dict`, a resumed feed uses them. Otherwise the feed
    starts a new pass and discards the rows that it delivered before. Without a spec, the stream infers the spec from
    the first row. The next pass still yields that row.
    """

    def __init__(self, make: Callable[[], Iterable[Tree]], spec: Tree | None) -> None:
        if not callable(make):
            raise SpecError(
                f"from_generator() got {type(make).__name__}, but every epoch needs a new generator. Pass the function "
                "that makes the generator, without calling it."
            )
        self._make = make
        # The iterator of a pass whose first rows were read in advance, and copies of these rows.
        self._peeked_pass: tuple[Iterator[Tree], list[Tree]] | None = None
        self._last_iterator: Iterator[Tree] | None = None
        self._has_inferred_spec = spec is None
        self.specs, self.structure = as_specs(spec) if spec is not None else self._infer_specs()
        for row_spec, name in zip(self.specs, self.structure.paths, strict=True):
            row_spec.check(name)

    def _infer_specs(self) -> tuple[tuple[ArraySpec, ...], Structure]:
        first = self._peek(1)
        if not first:
            raise SourceError(
                "the generator yielded no row, so Forebay cannot infer a spec. Yield rows, or pass spec=."
            )
        leaves, structure = flatten(first[0])
        return tuple(_infer_leaf_spec(leaf) for leaf in leaves), structure

    def sample(self, rows: int) -> list[list[Array]]:
        """Return the first rows of a pass, to infer specs.

        The next pass still yields these rows.
        """
        return GeneratorReader(iter(self._peek(rows)), self.specs, self.structure).rows(rows)

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "GeneratorReader":
        if self._peeked_pass is not None and state is None:
            (iterator, rows), self._peeked_pass = self._peeked_pass, None
            return GeneratorReader(iterator, self.specs, self.structure, peeked=rows)
        iterator = self._make_iterator()
        if state is not None:
            if not hasattr(iterator, "load_state_dict"):
                raise SourceError(
                    "the state dict contains the state of an iterator, but this iterator has no load_state_dict(). "
                    "Add that method, or resume with the generator that wrote the state."
                )
            iterator.load_state_dict(state)
        return GeneratorReader(iterator, self.specs, self.structure)

    def _make_iterator(self) -> Iterator[Tree]:
        iterator = iter(self._make())
        cannot_restart = isinstance(iterator, Generator) or type(iterator).__module__ in ("builtins", "itertools")
        if iterator is self._last_iterator and cannot_restart:
            raise SourceError(
                "the function given to from_generator() returned the same iterator twice, and it was already read. "
                "Return a new generator from each call."
            )
        self._last_iterator = iterator
        return iterator

    def with_ragged_specs(self, specs: Sequence[ArraySpec] | None = None) -> "RowStream":
        """Return a copy of the stream for rows that differ in shape.

        `specs` are the specs of ragged rows. Without `specs`, the copy is for rows that Forebay pads: an inferred spec
        then allows any length in each axis, and a spec from the user stays unchanged.
        """
        ragged = copy.copy(self)
        self._peeked_pass = None  # only the copy may yield the peeked rows, because both streams share the iterator
        if specs is not None:
            ragged.specs = tuple(specs)
        elif self._has_inferred_spec:
            ragged.specs = tuple(ArraySpec((None,) * len(spec.shape), spec.dtype) for spec in self.specs)
        return ragged

    def _peek(self, count: int) -> list[Tree]:
        """Return copies of the first rows of the next pass, which still yields these rows."""
        iterator, rows = self._peeked_pass or (self._make_iterator(), [])
        # Copy the rows, because a generator may reuse one array for all rows.
        rows = [*rows, *(_copy_row(row) for row in islice(iterator, max(0, count - len(rows))))]
        self._peeked_pass = (iterator, rows)
        return rows[:count]

    def describe(self) -> tuple[Any, ...]:
        return ("rows",)

    def close(self) -> None:
        self._peeked_pass = None


class GeneratorReader:
    """One pass over the rows of a generator.

    It yields the `peeked` rows before the rows of the iterator.
    """

    def __init__(
        self, iterator: Iterator[Tree], specs: Sequence[ArraySpec], structure: Structure, *, peeked: Sequence[Tree] = ()
    ) -> None:
        self._iterator = iterator
        self._rows = chain(peeked, iterator) if peeked else iterator
        self._peeked_count = len(peeked)
        self._specs, self._structure, self._names = specs, structure, structure.paths
        self._is_single_leaf = structure.kind is None
        self._row_number = 0

    def read(self, out: Sequence[Array | list[Array]]) -> int:
        """Copy rows to `out` until it is full or the generator ends.

        Each entry of `out` is the array of one leaf, or a list with one view per row. Return the number of rows.
        """
        read = self._read_single_leaf if self._is_single_leaf else self._read_tree
        count = read([leaf if isinstance(leaf, list) else row_views(leaf) for leaf in out])
        self._row_number += count
        return count

    def rows(self, count: int) -> list[list[Array]]:
        """Return the next rows, each as a list of validated leaves.

        Unlike `read`, this method supports rows of different shapes.
        """
        rows = []
        for tree in islice(self._rows, count):
            rows.append(self._validate_row(tree, self._row_number))
            self._row_number += 1
        return rows

    def skip(self, rows: int) -> int:
        skipped = sum(1 for _ in islice(self._rows, rows))
        self._row_number += skipped
        return skipped

    def state_dict(self) -> dict[str, Any] | None:
        get_state = getattr(self._iterator, "state_dict", None)  # an optional method of the user's iterator
        if get_state is None or self._row_number < self._peeked_count:
            # Some peeked rows are not read yet, so the state of the iterator is ahead of this reader.
            return None
        state: dict[str, Any] = copy.deepcopy(get_state())  # the iterator may change this dict later
        return state

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)  # generators have it, other iterators may not
        if close is not None:
            close()

    def _read_single_leaf(self, out: Sequence[list[Array]]) -> int:
        """Copy rows that are single arrays. A matching array is copied without further checks."""
        targets, nbytes, dtype, ndarray = out[0], self._specs[0].nbytes, self._specs[0].dtype, np.ndarray
        count, row = 0, None
        try:
            # `zip` advances `targets` before the generator, so no row is lost when `targets` ends.
            for target, row in zip(targets, self._rows, strict=False):
                if row.__class__ is ndarray and row.dtype is dtype and row.nbytes == nbytes:
                    # For a wrong shape of the same size, NumPy raises ValueError, unless only axes of length 1 differ.
                    target[...] = row
                else:
                    target[...] = self._validate_row(row, self._row_number + count)[0]
                count += 1
        except ValueError:
            if row is not None:
                self._validate_row(row, self._row_number + count)  # raises SpecError if the shape is wrong
            raise  # the row is valid, so the generator raised the error
        return count

    def _read_tree(self, out: Sequence[list[Array]]) -> int:
        count = 0
        for *targets, tree in zip(*out, self._rows, strict=False):
            for target, leaf in zip(targets, self._validate_row(tree, self._row_number + count), strict=True):
                target[...] = leaf
            count += 1
        return count

    def _validate_row(self, tree: Tree, row: int) -> list[Array]:
        """Return the leaves of a row. Raise SpecError if they do not match the specs."""
        try:
            leaves = self._structure.flatten_like(tree)
        except SpecError as error:
            raise SpecError(
                f"row {row} of the generator does not match the spec: {error} Change the row or the spec."
            ) from None
        return [
            _as_spec_array(leaf, spec, name, row)
            for leaf, spec, name in zip(leaves, self._specs, self._names, strict=True)
        ]


def _copy_row(row: Tree) -> Tree:
    leaves, structure = flatten(row)
    return structure.unflatten([np.array(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _infer_leaf_spec(leaf: Any) -> ArraySpec:
    if type(leaf) in (int, float, bool):
        return ArraySpec((), type(leaf))
    array = np.asarray(leaf)
    return ArraySpec(array.shape, array.dtype)


def _as_spec_array(leaf: Any, spec: ArraySpec, name: str, row: int) -> Array:
    """Return a leaf as an array that matches the spec, or raise SpecError.

    Python numbers are converted to the dtype of the spec. Arrays must already have this dtype.
    """
    try:
        array = np.asarray(leaf) if hasattr(leaf, "dtype") else np.asarray(leaf, dtype=_number_dtype(leaf, spec))
    except (OverflowError, ValueError) as error:
        raise SpecError(
            f"row {row} of the generator does not fit {spec} in {name!r}: {error}. Change the row or the spec."
        ) from None
    has_shape = len(array.shape) == len(spec.shape) and all(
        want is None or want == got for want, got in zip(spec.shape, array.shape, strict=True)
    )
    if not has_shape or array.dtype != spec.dtype:
        got = ArraySpec(array.shape, array.dtype)
        raise SpecError(
            f"row {row} of the generator does not match the spec in {name!r}: expected {spec}, got {got}. "
            "Change the row or the spec."
        )
    return array


def _number_dtype(leaf: Any, spec: ArraySpec) -> np.dtype[Any] | None:
    """Return the dtype for Python numbers: that of the spec, or None for NumPy's default.

    The dtype of the spec applies if NumPy's "same_kind" casting allows it: integers to floats, but not floats to
    integers.
    """
    default = np.asarray(leaf).dtype
    return spec.dtype if np.can_cast(default, spec.dtype, "same_kind") else None
