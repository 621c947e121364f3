"""Shapes, dtypes and trees: what a row looks like, and where a batch of rows lies in a slot.

A tree is a dict, tuple, named tuple or list of arrays, nested as the user likes, or a lone array. What goes in is
what comes out: a `Structure` remembers the nest, everything between works on the flat list of its leaves.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from forebay.errors import SpecError

if TYPE_CHECKING:  # half of what importing Forebay would cost otherwise
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
Tree: TypeAlias = Any  # a nest of arrays; Python cannot say "recursively, of leaves" without getting in the way

DEVICE_ALIGNMENT = 256  # of every leaf of every batch on a device
HOST_ALIGNMENT = 64  # TensorFlow aborts the process on less, JAX silently copies


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape and dtype of one row of one array; `None` in the shape marks a length that differs from row to row.

    >>> ArraySpec((32, 32, 3), "uint8").nbytes
    3072
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    nbytes: int = field(init=False, repr=False, compare=False)  # of one row; lengths that differ count as one

    def __init__(self, shape: Sequence[int | None], dtype: "DTypeLike") -> None:
        try:
            lengths = tuple(None if length is None else index(length) for length in shape)
            native = _native(np.dtype(dtype))
        except TypeError as error:
            raise SpecError(
                f"ArraySpec({shape!r}, {dtype!r}) is not a shape and a dtype: pass, say, ArraySpec((28, 28), 'uint8')."
            ) from error
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "dtype", native)
        object.__setattr__(self, "nbytes", math.prod(self.batch_shape(1)) * native.itemsize)

    @property
    def ragged(self) -> bool:
        return None in self.shape

    def batch_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of so many rows; lengths that differ count as one."""
        return (rows, *(1 if length is None else length for length in self.shape))

    def empty(self, rows: int) -> "Array":
        """Fresh memory for so many rows."""
        return np.empty(self.batch_shape(rows), self.dtype)

    def check(self, name: str) -> None:
        """Refuse what has no bytes of its own to move."""
        if self.dtype.hasobject:
            raise SpecError(
                f"{name!r} has dtype {self.dtype}, which holds Python objects: they cannot be moved as bytes. "
                "Convert it first, for example with array.astype('float32') or by padding lists to one length."
            )

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if length is None else str(length) for length in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Structure:
    """The nest that a flat list of leaves came from."""

    kind: type[Any] | None  # dict, tuple, list or a named tuple's class; None at a leaf
    keys: tuple[Any, ...] = ()
    children: tuple["Structure", ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """A name for each leaf: `image`, `0`, `pair.1`; a lone array is called `array`."""
        return tuple(".".join(path) or "array" for path in self._paths(()))

    def _paths(self, prefix: tuple[str, ...]) -> list[tuple[str, ...]]:
        if self.kind is None:
            return [prefix]
        pairs = zip(self.keys, self.children, strict=True)
        return [path for key, child in pairs for path in child._paths((*prefix, str(key)))]

    def unflatten(self, leaves: Sequence[Any]) -> Tree:
        """Build the tree again around other leaves."""
        return self.builder()(leaves)

    def builder(self) -> Callable[[Sequence[Any]], Tree]:
        """The fastest function that puts leaves back into the nest: it runs once a batch."""
        if self.kind is None:
            return _lone
        level = self._level()
        if all(child.kind is None for child in self.children):
            return level
        builders = [(child.builder(), len(child.paths)) for child in self.children]

        def build(leaves: Sequence[Any]) -> Tree:
            built, start = [], 0
            for builder, count in builders:
                built.append(builder(leaves[start : start + count]))
                start += count
            return level(built)

        return build

    def _level(self) -> Callable[[Sequence[Any]], Tree]:
        """What puts the children of this level back together."""
        kind, keys = self.kind, self.keys
        assert kind is not None
        if kind is dict:
            return lambda built: dict(zip(keys, built, strict=True))
        return (lambda built: kind(*built)) if hasattr(kind, "_fields") else kind

    def flatten_like(self, tree: Tree) -> list[Any]:
        """The leaves of a tree that must have this very nest; lists at a leaf's place are left whole."""
        if self.kind is None:
            return [tree]
        children = _children_like(self, tree)
        return [leaf for child, part in zip(self.children, children, strict=True) for leaf in child.flatten_like(part)]


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """The leaves of a tree, and the structure that puts them back.

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
    """A user's spec as flat row specs: leaves may be `ArraySpec`, anything with `shape` and `dtype`, or a dtype.

    >>> as_specs({"x": ArraySpec((3,), "float32"), "y": "int64"})[0][1]
    ArraySpec(shape=(), dtype=dtype('int64'))
    """
    leaves, structure = flatten(spec)
    return tuple(_as_spec(leaf) for leaf in leaves), structure


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each leaf of each batch of a group lies in a slot: every one starts at a multiple of the alignment."""

    specs: tuple[ArraySpec, ...]
    batch_rows: int
    batches: int
    strides: tuple[int, ...]  # bytes from a leaf of one batch to the same leaf of the next
    offsets: tuple[int, ...]  # bytes to the first batch's leaf
    nbytes: int

    @classmethod
    def of(
        cls, specs: Sequence[ArraySpec], *, batch_rows: int, batches: int = 1, alignment: int = HOST_ALIGNMENT
    ) -> "Layout":
        strides = tuple(align(spec.nbytes * batch_rows, alignment) for spec in specs)
        offsets, start = [], 0
        for stride in strides:
            offsets.append(start)
            start += stride * batches
        return cls(tuple(specs), batch_rows, batches, strides, tuple(offsets), max(start, alignment))

    def packed(self, leaf: int) -> bool:
        """Whether the batches of a group follow each other without a gap in this leaf."""
        return self.strides[leaf] == self.specs[leaf].nbytes * self.batch_rows

    def parts(self, rows: int) -> list[tuple[int, int]]:
        """Where so many rows lie, leaf by leaf: offset and bytes, gaps between batches included."""
        if rows == 0:  # as of an empty batch, whose layout has no rows either
            return []
        whole, rest = divmod(rows, self.batch_rows)
        return [
            (offset, whole * stride + rest * spec.nbytes)
            for offset, stride, spec in zip(self.offsets, self.strides, self.specs, strict=True)
            if spec.nbytes
        ]

    def view(self, memory: Any, leaf: int, *, batch: int = 0, rows: int | None = None) -> Array:
        """An array over one leaf of one batch; with `rows` past one batch, over several packed ones."""
        spec = self.specs[leaf]
        shape = spec.batch_shape(self.batch_rows if rows is None else rows)
        offset = self.offsets[leaf] + batch * self.strides[leaf]
        return np.ndarray(shape, spec.dtype, buffer=memory, offset=offset)


def align(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_nbytes(amount: int | str, name: str) -> int:
    """A number of bytes from 500_000_000, "500MB" or "0.5 GiB".

    >>> parse_nbytes("64MiB", "host_bytes")
    67108864
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", str(amount))
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) <= 0 or isinstance(amount, bool):
        raise SpecError(f"{name}={amount!r} is not a number of bytes: pass an int, or text such as '500MB' or '2GiB'.")
    return int(float(match[1]) * unit)


def format_nbytes(nbytes: float) -> str:
    """Bytes for people, in the binary units that memory is counted in.

    >>> format_nbytes(3 * 2**20)
    '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(nbytes) < 1024 or unit == "TiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def _lone(leaves: Sequence[Any]) -> Tree:
    return leaves[0]


def _flatten_level(kind: type[Any], keys: tuple[Any, ...], items: Sequence[Any]) -> tuple[list[Any], Structure]:
    if not keys:
        raise SpecError("an empty dict, tuple or list holds no arrays: leave it out of the tree.")
    parts = [flatten(item) for item in items]
    leaves = [leaf for part, _ in parts for leaf in part]
    return leaves, Structure(kind, keys, tuple(structure for _, structure in parts))


def _children_like(structure: Structure, tree: Tree) -> list[Any]:
    if isinstance(tree, Mapping) and structure.kind is dict:
        if set(tree) != set(structure.keys):
            raise SpecError(f"expected the fields {list(structure.keys)}, got {list(tree)}.")
        return [tree[key] for key in structure.keys]
    if isinstance(tree, tuple | list) and structure.kind is not dict and len(tree) == len(structure.keys):
        return list(tree)
    got = f"{type(tree).__name__} of {len(tree)}" if isinstance(tree, tuple | list) else type(tree).__name__
    raise SpecError(f"expected the fields {list(structure.keys)}, got a {got}.")


def _as_spec(leaf: Any) -> ArraySpec:
    if isinstance(leaf, ArraySpec):
        return leaf
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    try:
        if shape is not None and dtype is not None:
            # A TensorFlow or Keras spec: its dtype knows its NumPy name.
            return ArraySpec(tuple(shape), getattr(dtype, "as_numpy_dtype", dtype))
        return ArraySpec((), leaf)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{leaf!r} is not a spec: pass ArraySpec(shape, dtype), or a dtype for a scalar.") from error


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In this machine's byte order; NumPy's own object where it has one, so that `is` finds equal dtypes."""
    if dtype.isnative:
        return dtype
    swapped = dtype.newbyteorder("=")
    return swapped if swapped.fields else np.dtype(swapped.str)
