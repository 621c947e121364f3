"""What is done to a batch on its way, and where it may run.

A transform takes the flat leaves of a batch and gives new ones. The user's own functions are `Map`s. `cast`, `scale`
and `one_hot` are known to the plan: it may place them on either side of the link, wherever fewer bytes cross.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import PipelineError, SpecError, TransformError
from forebay.order.orders import derive_key
from forebay.transforms.padding import pad_rows

if TYPE_CHECKING:  # half of what importing Forebay would cost otherwise
    from numpy.typing import DTypeLike

__all__ = [
    "Cast",
    "Map",
    "OneHot",
    "Scale",
    "Transform",
    "apply_all",
    "by_leaf",
    "cast",
    "make_rng",
    "one_hot",
    "scale",
    "transformed",
    "write_leaves",
]

Leaves = list[Any]


class Transform(Protocol):
    """One step on the leaves of a batch."""

    @property
    def where(self) -> str:
        """thread, process, ray or device; "either" leaves it to the plan."""
        ...

    def apply(self, leaves: Leaves, structure: Structure, key: Sequence[int]) -> tuple[Leaves, Structure]: ...
    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Map:
    """A function of the user's, on whole batches or on single rows."""

    function: Callable[..., Tree]
    where: str
    by_row: bool
    takes_rng: bool
    seed: int
    pad: Any = None  # what fills rows up that come out in different shapes
    structure: Structure | None = None  # what it returned when it was traced, and must return again
    workers: int | None = None  # processes or Ray workers to run it; None: one for each CPU that is free

    @classmethod
    def of(
        cls, function: Callable[..., Tree], *, where: str, by_row: bool, seed: int, workers: int | None = None
    ) -> "Map":
        if where not in ("thread", "process", "ray", "device"):
            raise PipelineError(f"map(where={where!r}) is unknown: choose 'thread', 'process', 'ray' or 'device'.")
        if workers is not None and where not in ("process", "ray"):
            raise PipelineError(f"map(where={where!r}, workers={workers}): only 'process' and 'ray' have workers.")
        return cls(function, where, by_row, _takes_rng(function), seed, workers=workers)

    def apply(self, leaves: Leaves, structure: Structure, key: Sequence[int]) -> tuple[Leaves, Structure]:
        rng = make_rng(self.seed, key) if self.takes_rng else None
        if not self.by_row:
            returned, result = self._flatten(self._call(structure.unflatten(leaves), rng), self.structure)
            return self._check_length(result, returned, len(leaves[0]))
        found, rows = self.structure, []
        for row in zip(*leaves, strict=True):
            found, result = self._flatten(self._call(structure.unflatten(row), rng), found)
            rows.append(result)
        assert found is not None  # a batch has a row at least
        return pad_rows(rows, found.paths, self.pad), found

    def _flatten(self, tree: Tree, expected: Structure | None) -> tuple[Structure, Leaves]:
        """The leaves of a result; by the names they had before, whatever order they come in now."""
        if tree is None:
            raise TransformError(f"{self} returned None: let it return what it makes of a batch, or of a row.")
        if expected is None:
            leaves, structure = flatten(tree)
            return structure, leaves
        try:
            return expected, expected.flatten_like(tree)
        except SpecError as error:
            raise TransformError(f"{self} returned another tree than before: {error}") from None

    def _call(self, tree: Tree, rng: "np.random.Generator | None") -> Tree:
        return self.function(tree) if rng is None else self.function(tree, rng=rng)

    def _check_length(self, leaves: Leaves, structure: Structure, rows: int) -> tuple[Leaves, Structure]:
        arrays = [np.asarray(leaf) for leaf in leaves]
        for array, name in zip(arrays, structure.paths, strict=True):
            if array.ndim == 0 or len(array) != rows:
                found = "a single value" if array.ndim == 0 else f"{len(array)} rows"
                raise TransformError(
                    f"{self} returned {found} in {name!r} for a batch of {rows}: return as many rows as came in."
                )
        return arrays, structure

    def __str__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"map({name}{', rows' if self.by_row else ''})"


@dataclass(frozen=True, slots=True)
class Cast:
    """Another dtype for some fields."""

    fields: Mapping[str, np.dtype[Any]] | np.dtype[Any]
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, key: Sequence[int]) -> tuple[Leaves, Structure]:
        wanted = by_leaf(self.fields, structure, self)
        return [
            leaf if to is None else leaf.astype(to, copy=False) for leaf, to in zip(leaves, wanted, strict=True)
        ], structure

    def __str__(self) -> str:
        return f"cast({_told(self.fields)})"


@dataclass(frozen=True, slots=True)
class Scale:
    """field * factor + offset, as `dtype`."""

    fields: Mapping[str, float] | float
    offset: float
    dtype: np.dtype[Any]
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, key: Sequence[int]) -> tuple[Leaves, Structure]:
        factors = by_leaf(self.fields, structure, self)
        return [
            leaf if by is None else self._scaled(leaf, by) for leaf, by in zip(leaves, factors, strict=True)
        ], structure

    def _scaled(self, leaf: Any, factor: float) -> Any:
        scaled = np.multiply(leaf, self.dtype.type(factor), dtype=self.dtype, casting="unsafe")
        return np.add(scaled, self.dtype.type(self.offset), out=scaled) if self.offset else scaled

    def __str__(self) -> str:
        return f"scale({_told(self.fields)}{f', offset={self.offset}' if self.offset else ''})"


@dataclass(frozen=True, slots=True)
class OneHot:
    """Class numbers to rows with a single one in them."""

    fields: Mapping[str, int] | int
    dtype: np.dtype[Any]
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, key: Sequence[int]) -> tuple[Leaves, Structure]:
        classes = by_leaf(self.fields, structure, self)
        encoded = [
            leaf if count is None else self._encode(leaf, count, name)
            for leaf, count, name in zip(leaves, classes, structure.paths, strict=True)
        ]
        return encoded, structure

    def _encode(self, leaf: Any, classes: int, name: str) -> Any:
        if leaf.dtype.kind not in "iu":
            raise TransformError(f"one_hot needs whole numbers, but {name!r} is {leaf.dtype}.")
        outside = (leaf < 0) | (leaf >= classes)
        if outside.any():
            raise TransformError(
                f"one_hot({classes}): {name!r} holds {leaf[outside].flat[0]}, outside 0..{classes - 1}."
            )
        return (leaf[..., None] == np.arange(classes)).astype(self.dtype)

    def __str__(self) -> str:
        return f"one_hot({_told(self.fields)})"


def cast(fields: Any) -> Cast:
    """Other dtypes for some fields, `map(fb.cast({"image": "float32"}))`, or for all: `map(fb.cast("float32"))`."""
    if isinstance(fields, Mapping):
        return Cast({str(name): _dtype(dtype) for name, dtype in fields.items()})
    return Cast(_dtype(fields))


def scale(fields: Mapping[str, float] | float, *, offset: float = 0.0, dtype: "DTypeLike" = "float32") -> Scale:
    """Multiply, then add: `map(fb.scale({"image": 1 / 255}))` makes floats between 0 and 1 of bytes."""
    return Scale(_named(fields), offset, _dtype(dtype))


def one_hot(fields: Mapping[str, int] | int, *, dtype: "DTypeLike" = "float32") -> OneHot:
    """Class numbers to one-hot rows: `map(fb.one_hot({"label": 10}))`."""
    return OneHot(_named(fields), _dtype(dtype))


def apply_all(
    transforms: Sequence[Transform], leaves: Leaves, structure: Structure, key: Sequence[int], *, first: int = 0
) -> tuple[Leaves, Structure]:
    """One transform after the other; each draws from a generator of its own, by its number in the pipeline."""
    for number, transform in enumerate(transforms, first):
        try:
            leaves, structure = transform.apply(leaves, structure, (*key, number))
        except Exception as error:
            error.add_note(f"in {transform}")
            raise
    return leaves, structure


def transformed(transforms: Sequence[Transform]) -> str:
    """The transforms in words, for errors."""
    return " then ".join(map(str, transforms))


def write_leaves(leaves: Leaves, out: Sequence[Array], names: Sequence[str], told: str) -> None:
    """Copy what the transforms gave into a slot, if it is what tracing promised."""
    if len(leaves) != len(out):
        raise TransformError(
            f"{told} returned {len(leaves)} arrays, but {len(out)} when it was traced: always return the same fields."
        )
    for leaf, target, name in zip(leaves, out, names, strict=True):
        array = np.asarray(leaf)
        if array.shape != target.shape or array.dtype != target.dtype:
            got, want = ArraySpec(array.shape[1:], array.dtype), ArraySpec(target.shape[1:], target.dtype)
            raise TransformError(
                f"{told} returned {got} for {len(array)} rows in {name!r}, but {want} for {len(target)} was traced. "
                "Return one shape and dtype, or let batch(..., pad=0) pad what differs."
            )
        target[...] = array


def _takes_rng(function: Callable[..., Any]) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False


def make_rng(seed: int, key: Sequence[int]) -> "np.random.Generator":
    """The generator of one map on one batch."""
    return np.random.Generator(np.random.Philox(key=derive_key(seed, *key)))


def _dtype(name: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        raise SpecError(f"{name!r} is not a dtype: pass for example 'float32'.") from None
    return dtype


def _named(fields: Mapping[str, Any] | Any) -> Any:
    return {str(name): value for name, value in fields.items()} if isinstance(fields, Mapping) else fields


def _told(fields: Mapping[str, Any] | Any) -> str:
    if isinstance(fields, Mapping):
        return ", ".join(f"{name}: {_shown(value)}" for name, value in fields.items())
    return _shown(fields)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def by_leaf(fields: Mapping[str, Any] | Any, structure: Structure, told: Any) -> list[Any]:
    """A value for each leaf; None where the transform leaves it alone."""
    if not isinstance(fields, Mapping):
        return [fields] * len(structure.paths)
    unknown = [name for name in fields if name not in structure.paths]
    if unknown:
        raise SpecError(f"{told} names {unknown[0]!r}, but the fields are {', '.join(map(repr, structure.paths))}.")
    return [fields.get(name) for name in structure.paths]
