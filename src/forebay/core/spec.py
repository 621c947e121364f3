"""Row specs (shape and dtype), trees of arrays, and slot layouts.

A tree is a single array, or a dict, tuple, named tuple or list of trees. `flatten` returns the flat list of its arrays
(the leaves) and a `Structure`, which describes how they are nested and from which `unflatten` builds the tree again.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from forebay.errors import SpecError

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = [
    "Array",
    "ArraySpec",
    "DEVICE_ALIGNMENT",
    "HOST_ALIGNMENT",
    "Layout",
    "Structure",
    "Tree",
    "align",
    "as_specs",
    "flatten",
    "format_nbytes",
    "parse_nbytes",
]

Array: TypeAlias = np.ndarray[Any, Any]
Tree: TypeAlias = Any  # a recursive type would be exact, but every caller would have to narrow it

DEVICE_ALIGNMENT = 256  # bytes; the address of every leaf of a batch on a device is a multiple of this
HOST_ALIGNMENT = 64  # bytes; with a smaller alignment, TensorFlow aborts the process and JAX copies silently


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one leaf of a row.

    Args:
        shape: The shape of one row. None stands for a length that varies from row to row.
        dtype: A dtype of NumPy, or its name.

    Examples:
        >>> ArraySpec((32, 32, 3), "uint8").nbytes
        3072
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    nbytes: int = field(init=False, repr=False, compare=False)  # bytes of one row; counts a variable length as 1

    def __init__(self, shape: Sequence[int | None], dtype: "DTypeLike") -> None:
        try:
            lengths = tuple(None if length is None else index(length) for length in shape)
            native = _to_native_byte_order(np.dtype(dtype))
        except TypeError as error:
            raise SpecError(
                f"ArraySpec({shape!r}, {dtype!r}) has no valid shape and dtype. Pass for example (28, 28) and 'uint8'."
            ) from error
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "dtype", native)
        object.__setattr__(self, "nbytes", math.prod(self.batch_shape(1)) * native.itemsize)

    @property
    def ragged(self) -> bool:
        """Whether any length varies from row to row."""
        return None in self.shape

    def batch_shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch of `rows` rows, with 1 for each variable length."""
        return (rows, *(1 if length is None else length for length in self.shape))

    def with_length(self, length: int) -> "ArraySpec":
        """Return the spec with `length` in place of its first variable length."""
        if not self.ragged:
            return self
        axis = self.shape.index(None)
        return ArraySpec((*self.shape[:axis], length, *self.shape[axis + 1 :]), self.dtype)

    def empty(self, rows: int) -> "Array":
        """Return an uninitialised array for `rows` rows."""
        return np.empty(self.batch_shape(rows), self.dtype)

    def check(self, name: str) -> None:
        """Raise SpecError if the dtype holds Python objects."""
        if self.dtype.hasobject:
            raise SpecError(
                f"{name!r} has dtype {self.dtype}, which holds Python objects. Forebay moves plain bytes only. Convert "
                "the array first, for example with array.astype('float32') or by padding lists to one length."
            )

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if length is None else str(length) for length in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Structure:
    """How the leaves of a tree are nested."""

    kind: type[Any] | None  # dict, tuple, list or a named tuple class; None for a leaf
    keys: tuple[Any, ...] = ()  # dict keys, field names or positions of the children
    children: tuple["Structure", ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Names of the leaves, such as `image` or `pair.1`; `array` for a single array."""
        return tuple(".".join(path) or "array" for path in self._paths(()))

    def _paths(self, prefix: tuple[str, ...]) -> list[tuple[str, ...]]:
        if self.kind is None:
            return [prefix]
        pairs = zip(self.keys, self.children, strict=True)
        return [path for key, child in pairs for path in child._paths((*prefix, str(key)))]

    def unflatten(self, leaves: Sequence[Any]) -> Tree:
        """Return the tree of these leaves."""
        return self.builder()(leaves)

    def builder(self) -> Callable[[Sequence[Any]], Tree]:
        """Return a function that builds many trees of leaves faster than `unflatten` does."""
        if self.kind is None:
            return _first_leaf
        build_level = self._level_builder()
        if all(child.kind is None for child in self.children):
            return build_level
        builders = [(child.builder(), len(child.paths)) for child in self.children]

        def build(leaves: Sequence[Any]) -> Tree:
            children, start = [], 0
            for builder, count in builders:
                children.append(builder(leaves[start : start + count]))
                start += count
            return build_level(children)

        return build

    def _level_builder(self) -> Callable[[Sequence[Any]], Tree]:
        """Return a function that builds the outermost dict, tuple or list from its items."""
        kind, keys = self.kind, self.keys
        assert kind is not None
        if kind is dict:
            return lambda children: dict(zip(keys, children, strict=True))
        return (lambda children: kind(*children)) if hasattr(kind, "_fields") else kind

    def flatten_like(self, tree: Tree) -> list[Any]:
        """Return the leaves of a tree that has this structure.

        A list in place of a leaf becomes one leaf. Raise SpecError if the tree has another structure.
        """
        if self.kind is None:
            return [tree]
        subtrees = _subtrees_in_order(self, tree)
        if all(child.kind is None for child in self.children):
            return subtrees
        return [leaf for child, part in zip(self.children, subtrees, strict=True) for leaf in child.flatten_like(part)]


def _first_leaf(leaves: Sequence[Any]) -> Tree:
    return leaves[0]


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree and its structure.

    A list without any array, dict or tuple among its items is one leaf.

    >>> leaves, structure = flatten({"x": 1, "y": (2, 3)})
    >>> leaves, structure.paths
    ([1, 2, 3], ('x', 'y.0', 'y.1'))
    """
    if isinstance(tree, Mapping):
        keys = tuple(tree)
        return _flatten_level(dict, keys, [tree[key] for key in keys])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _flatten_level(type(tree), tuple(tree._fields), list(tree))
    if isinstance(tree, tuple):
        return _flatten_level(tuple, tuple(range(len(tree))), list(tree))
    if isinstance(tree, list) and any(hasattr(item, "shape") or isinstance(item, Mapping | tuple) for item in tree):
        return _flatten_level(list, tuple(range(len(tree))), tree)
    return [tree], Structure(None)


def as_specs(spec: Tree) -> tuple[tuple[ArraySpec, ...], Structure]:
    """Convert a user's tree of specs to a flat tuple of specs and a structure.

    A leaf is an `ArraySpec`, an object with `shape` and `dtype`, or a dtype for a scalar.

    >>> as_specs({"x": ArraySpec((3,), "float32"), "y": "int64"})[0][1]
    ArraySpec(shape=(), dtype=dtype('int64'))
    """
    leaves, structure = flatten(spec)
    return tuple(_as_spec(leaf) for leaf in leaves), structure


@dataclass(frozen=True, slots=True)
class Layout:
    """The byte positions of each leaf of each batch in a slot."""

    specs: tuple[ArraySpec, ...]
    batch_rows: int  # rows per batch
    batches: int  # batches per slot
    strides: tuple[int, ...]  # for each leaf, bytes from one batch to the next
    offsets: tuple[int, ...]  # for each leaf, bytes from the start of the slot to its first batch
    nbytes: int  # size of the slot
    row_counts: tuple[int, ...] = ()  # rows of each leaf if leaves differ, as in one batch of ragged rows; else empty

    @classmethod
    def of(
        cls, specs: Sequence[ArraySpec], *, batch_rows: int, batches: int = 1, alignment: int = HOST_ALIGNMENT
    ) -> "Layout":
        return cls._of(specs, (batch_rows,) * len(specs), batch_rows, batches, alignment)

    @classmethod
    def of_arrays(cls, arrays: Sequence["Array"], *, batch_rows: int, alignment: int) -> "Layout":
        """Return the layout of one batch whose leaves may differ in their number of rows."""
        specs, counts = [ArraySpec(array.shape[1:], array.dtype) for array in arrays], tuple(map(len, arrays))
        layout = cls._of(specs, counts, batch_rows, 1, alignment)
        return layout if set(counts) == {batch_rows} else replace(layout, row_counts=counts)

    @classmethod
    def _of(
        cls, specs: Sequence[ArraySpec], counts: Sequence[int], batch_rows: int, batches: int, alignment: int
    ) -> "Layout":
        strides = tuple(align(spec.nbytes * count, alignment) for spec, count in zip(specs, counts, strict=True))
        offsets, start = [], 0
        for stride in strides:
            offsets.append(start)
            start += stride * batches
        return cls(tuple(specs), batch_rows, batches, strides, tuple(offsets), max(start, alignment))

    def is_packed(self, leaf: int) -> bool:
        """Return whether the batches of this leaf follow each other in the slot without gaps."""
        return self.strides[leaf] == self.specs[leaf].nbytes * self.batch_rows

    def parts(self, rows: int) -> list[tuple[int, int]]:
        """Return (offset, nbytes) of the first `rows` rows of each leaf, including the gaps between batches."""
        if self.row_counts:
            leaves = zip(self.offsets, self.specs, self.row_counts, strict=True)
            return [(offset, spec.nbytes * count) for offset, spec, count in leaves if spec.nbytes * count]
        if rows == 0:  # the layout of an empty batch has batch_rows == 0, by which `divmod` cannot divide
            return []
        whole_batches, remaining_rows = divmod(rows, self.batch_rows)
        return [
            (offset, whole_batches * stride + remaining_rows * spec.nbytes)
            for offset, stride, spec in zip(self.offsets, self.strides, self.specs, strict=True)
            if spec.nbytes
        ]

    def view(self, memory: Any, leaf: int, *, batch: int = 0, rows: int | None = None) -> Array:
        """Return one leaf of one batch as an array that uses `memory`.

        `rows` may exceed one batch if `is_packed(leaf)`. Without `rows`, return all rows of the batch.
        """
        spec = self.specs[leaf]
        if rows is None:
            rows = self.row_counts[leaf] if self.row_counts else self.batch_rows
        shape = spec.batch_shape(rows)
        offset = self.offsets[leaf] + batch * self.strides[leaf]
        return np.ndarray(shape, spec.dtype, buffer=memory, offset=offset)


def align(nbytes: int, alignment: int) -> int:
    """Return `nbytes` rounded up to a multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_nbytes(amount: int | str, name: str) -> int:
    """Return the bytes of the option `name`, such as 500_000_000, "500MB" or "0.5 GiB".

    >>> parse_nbytes("64MiB", "host_bytes")
    67108864
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", str(amount))
    unit = _UNITS.get(match[2].upper()) if match else None
    nbytes = int(float(match[1]) * unit) if match and unit else 0
    if nbytes <= 0 or isinstance(amount, bool):
        raise SpecError(
            f"{name}={amount!r} is not a number of bytes above 0. Pass an int, or a string such as '500MB' or '2GiB'."
        )
    return nbytes


def format_nbytes(nbytes: float) -> str:
    """Return a number of bytes as text with a binary unit.

    >>> format_nbytes(3 * 2**20)
    '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(nbytes) < 1024 or unit == "TiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def _flatten_level(kind: type[Any], keys: tuple[Any, ...], items: Sequence[Any]) -> tuple[list[Any], Structure]:
    if not keys:
        raise SpecError("the tree contains an empty dict, tuple or list. Remove it from the tree.")
    parts = [flatten(item) for item in items]
    return [leaf for part, _ in parts for leaf in part], Structure(kind, keys, tuple(child for _, child in parts))


def _subtrees_in_order(structure: Structure, tree: Tree) -> list[Any]:
    """Return the direct subtrees of a tree, in the order of `structure.keys`."""
    if isinstance(tree, Mapping) and structure.kind is dict:
        if set(tree) != set(structure.keys):
            raise SpecError(f"expected the fields {list(structure.keys)}, got {list(tree)}.")
        return [tree[key] for key in structure.keys]
    if isinstance(tree, tuple | list) and structure.kind is not dict and len(tree) == len(structure.keys):
        return list(tree)
    keys, kind = list(structure.keys), type(tree).__name__
    expected = f"the fields {keys}" if structure.kind is dict else f"a tuple or list of {len(keys)} items"
    got = f"a {kind} of {len(tree)} items" if isinstance(tree, tuple | list) else f"an object of type {kind}"
    raise SpecError(f"expected {expected}, got {got}.")


def _as_spec(leaf: Any) -> ArraySpec:
    if isinstance(leaf, ArraySpec):
        return leaf
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    try:
        if shape is not None and dtype is not None:
            # A dtype of TensorFlow has its NumPy dtype in `as_numpy_dtype`.
            return ArraySpec(tuple(shape), getattr(dtype, "as_numpy_dtype", dtype))
        return ArraySpec((), leaf)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{leaf!r} is not a spec. Pass ArraySpec(shape, dtype), or a dtype for a scalar.") from error


def _to_native_byte_order(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in native byte order.

    If the dtype has no fields, return NumPy's shared dtype object, so that callers can compare dtypes with `is`.
    """
    if dtype.isnative:
        return dtype
    swapped = dtype.newbyteorder("=")
    return swapped if swapped.fields else np.dtype(swapped.str)
