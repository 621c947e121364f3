"""Descriptions of JAX arrays, and of host data that becomes a JAX array."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax._src.array import ArrayImpl

from forebay.doctor.capture.data_fingerprint import fingerprint

__all__ = [
    "describe_array",
    "describe_converted",
    "describe_host_data",
    "device_of",
    "estimate_upload_end",
    "first_device",
    "has_host_array",
    "host_arrays_in",
    "is_host_array",
]

_MIN_FINGERPRINT_NBYTES = 1 << 10  # smaller arrays are single numbers, not data
_MAX_FINGERPRINTS = 8  # of one call: a tree of a thousand arrays is recognised by its largest
_NS_PER_ARGUMENT = 6_000  # that a NumPy argument adds to a call, whatever its size
_BYTES_PER_NS = 8  # copied by one host thread, or to a device from pageable memory

_HOST_TYPES = (np.ndarray, np.generic)
_EXACT_HOST_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})


def has_host_array(values: Iterable[Any]) -> bool:
    """Whether any value is a NumPy array or scalar. Hot path, so it compares exact types."""
    return not _EXACT_HOST_TYPES.isdisjoint(map(type, values))


def host_arrays_in(tree: Any) -> list[Any]:
    """Return the NumPy arrays and scalars in a tree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if is_host_array(leaf)]


def is_host_array(value: Any) -> bool:
    return isinstance(value, _HOST_TYPES)


def device_of(array: Any) -> str:
    """Return the device or devices of a JAX array."""
    return _format_devices(array.sharding)


def first_device(tree: Any) -> str | None:
    """Return the device of the first array in a tree, which is where a call ran; None while it is traced."""
    return next((device_of(leaf) for leaf in jax.tree_util.tree_leaves(tree) if isinstance(leaf, ArrayImpl)), None)


def describe_array(array: Any) -> dict[str, Any]:
    return _describe(array.sharding, array.dtype, array.shape)


@lru_cache(maxsize=1024)
def _describe(sharding: Any, dtype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return one dict for all similar arrays. Events share it, so it must not be changed."""
    return {"device": _format_devices(sharding), "dtype": str(dtype), "shape": list(shape)}


def describe_converted(array: Any, data: Any) -> dict[str, Any]:
    """Describe an array that was made from host data: NumPy arrays or Python numbers."""
    source = _describe_source([data], array.dtype) if is_host_array(data) else {"from_dtype": type(data).__name__}
    return describe_array(array) | source


def describe_host_data(data: Sequence[Any], device: str | None) -> tuple[int, dict[str, Any]]:
    """Return the bytes of host arrays that a call uploads, and details of the largest one."""
    nbytes = sum(array.size * _jax_dtype(array.dtype).itemsize for array in data)
    largest = max(data, key=_nbytes)
    dtype = _jax_dtype(largest.dtype)
    detail = {"dtype": _dtype_name(dtype), "shape": list(largest.shape)}
    return nbytes, detail | ({"device": device} if device else {}) | _describe_source(data, dtype)


def estimate_upload_end(start: int, end: int, nbytes: int) -> int:
    """Estimate when an upload inside a call ended: after the time of a copy, but not after the call."""
    return min(end, start + _NS_PER_ARGUMENT + nbytes // _BYTES_PER_NS)


def _describe_source(data: Sequence[Any], dtype: Any) -> dict[str, Any]:
    """Describe host data before its upload: its type, if that changed, and its fingerprints."""
    large = sorted((array for array in data if array.nbytes >= _MIN_FINGERPRINT_NBYTES), key=_nbytes, reverse=True)
    keys = [fingerprint(array) for array in large[:_MAX_FINGERPRINTS]]
    before = max(data, key=_nbytes).dtype
    converted = {"from_dtype": _dtype_name(before)} if before != dtype else {}
    return converted | ({"key": " ".join(keys)} if keys and all(keys) else {})


def _nbytes(array: Any) -> int:
    return int(array.nbytes)


def _jax_dtype(dtype: Any) -> Any:
    """Return the dtype after conversion by JAX: 32 bits instead of 64, unless x64 is enabled."""
    return jax.dtypes.canonicalize_dtype(dtype)


@lru_cache(maxsize=64)
def _format_devices(sharding: Any) -> str:
    devices = sorted(sharding.device_set, key=lambda device: int(device.id))
    return f"{devices[0].platform}:{','.join(str(device.id) for device in devices)}"


@lru_cache(maxsize=64)
def _dtype_name(dtype: Any) -> str:
    return str(dtype)
