"""What is said of JAX's arrays, and of host data on its way to becoming one."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax._src.array import ArrayImpl

from forebay.doctor.capture.data_fingerprint import key_of

__all__ = ["about", "arrived", "data_in", "first_placed", "has_data", "incoming", "is_data", "placed", "within_call"]

_KEYED_NBYTES = 1 << 10  # a number or two is no data
_MOST_KEYS = 8  # of one call: a tree of a thousand arrays is known by its largest
_NANOSECONDS_EACH = 6_000  # that an argument of NumPy's adds to a call, whatever its size
_BYTES_PER_NANOSECOND = 8  # that one thread of the host copies, or a device takes from pageable memory

_DATA = (np.ndarray, np.generic)
_DATA_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})


def has_data(values: Iterable[Any]) -> bool:
    """Whether any of them is NumPy's: asked at every call, so by type and not one by one."""
    return not _DATA_TYPES.isdisjoint(map(type, values))


def data_in(tree: Any) -> list[Any]:
    """The arrays and numbers of NumPy's in a tree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if is_data(leaf)]


def is_data(value: Any) -> bool:
    return isinstance(value, _DATA)


def placed(array: Any) -> str:
    """Where an array of JAX's is."""
    return _devices(array.sharding)


def first_placed(tree: Any) -> str | None:
    """Where the first array of a tree is, which tells where a call was run; None while it is traced."""
    return next((placed(leaf) for leaf in jax.tree_util.tree_leaves(tree) if isinstance(leaf, ArrayImpl)), None)


def about(array: Any) -> dict[str, Any]:
    return _described(array.sharding, array.dtype, array.shape)


@lru_cache(maxsize=1024)
def _described(sharding: Any, dtype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """One for all arrays that are alike, as events keep it; nobody writes into it."""
    return {"device": _devices(sharding), "dtype": str(dtype), "shape": list(shape)}


def arrived(array: Any, data: Any) -> dict[str, Any]:
    """Details of an array that was made of host data, which may be Python's own."""
    origin = _origin([data], array.dtype) if is_data(data) else {"from_dtype": type(data).__name__}
    return about(array) | origin


def incoming(data: Sequence[Any], device: str | None) -> tuple[int, dict[str, Any]]:
    """Bytes and details of host data that a call took in; where there are several arrays, those of the largest."""
    nbytes = sum(array.size * _canonical(array.dtype).itemsize for array in data)
    largest = max(data, key=_nbytes)
    dtype = _canonical(largest.dtype)
    detail = {"dtype": _name(dtype), "shape": list(largest.shape)}
    return nbytes, detail | ({"device": device} if device else {}) | _origin(data, dtype)


def within_call(start: int, end: int, nbytes: int) -> int:
    """When an upload inside a call ends, which nobody sees: after what copying takes, and not after the call."""
    return min(end, start + _NANOSECONDS_EACH + nbytes // _BYTES_PER_NANOSECOND)


def _origin(data: Sequence[Any], dtype: Any) -> dict[str, Any]:
    """What the data was before: its type where that changed, and a key by which it is known again."""
    large = sorted((array for array in data if array.nbytes >= _KEYED_NBYTES), key=_nbytes, reverse=True)
    keys = [key_of(array) for array in large[:_MOST_KEYS]]
    before = max(data, key=_nbytes).dtype
    narrowed = {"from_dtype": _name(before)} if before != dtype else {}
    return narrowed | ({"key": " ".join(keys)} if keys and all(keys) else {})


def _nbytes(array: Any) -> int:
    return int(array.nbytes)


def _canonical(dtype: Any) -> Any:
    """What JAX makes of it: 32 bits of 64, unless it was told otherwise."""
    return jax.dtypes.canonicalize_dtype(dtype)


@lru_cache(maxsize=64)
def _devices(sharding: Any) -> str:
    devices = sorted(sharding.device_set, key=lambda device: int(device.id))
    return f"{devices[0].platform}:{','.join(str(device.id) for device in devices)}"


@lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    return str(dtype)
