"""Descriptions of JAX arrays, and of host data that becomes a JAX array."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax._src.array import ArrayImpl

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.capture.hooks.pieces import pieces_detail

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

_MIN_FINGERPRINT_NBYTES = 1 << 10  # smaller arrays are a few numbers, not training data
_MAX_FINGERPRINTS = 8  # per upload; the largest arrays are enough to recognise a tree of many arrays
# Estimate of the duration of an upload inside a call, which the hooks cannot time.
_NS_PER_UPLOAD = 6_000  # fixed part
_BYTES_PER_NS = 8  # speed of a copy from pageable memory: 8 GB/s

_HOST_TYPES = (np.ndarray, np.generic)
_EXACT_HOST_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})  # for a fast check of `type(value)`


def has_host_array(values: Iterable[Any]) -> bool:
    """Whether any value is a NumPy array or scalar.

    Hot path, so it compares exact types and does not find subclasses, except `np.memmap`.
    """
    return not _EXACT_HOST_TYPES.isdisjoint(map(type, values))


def host_arrays_in(tree: Any) -> list[Any]:
    """Return the NumPy arrays and scalars in a tree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if is_host_array(leaf)]


def is_host_array(value: Any) -> bool:
    return isinstance(value, _HOST_TYPES)


def device_of(array: Any) -> str:
    """Return the platform and device ids of a JAX array, such as `cuda:0` or `cuda:0,1`."""
    return _format_devices(array.sharding)


def first_device(tree: Any) -> str | None:
    """Return the device of the first JAX array in a tree, or None."""
    return next((device_of(leaf) for leaf in jax.tree_util.tree_leaves(tree) if isinstance(leaf, ArrayImpl)), None)


def describe_array(array: Any) -> dict[str, Any]:
    return _describe(array.sharding, array.dtype, array.shape)


@lru_cache(maxsize=1024)
def _describe(sharding: Any, dtype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return a cached dict, which events of arrays with equal properties share.

    Callers must not change it.
    """
    return {"device": _format_devices(sharding), "dtype": str(dtype), "shape": list(shape)}


def describe_converted(array: Any, data: Any) -> dict[str, Any]:
    """Describe a JAX array and the NumPy or Python data from which JAX made it."""
    if is_host_array(data):
        return describe_array(array) | _describe_host_side([data], array.dtype)
    if pieces := pieces_detail(data):
        return describe_array(array) | _describe_host_side(data, array.dtype) | pieces
    return describe_array(array) | {"from_dtype": type(data).__name__}


def describe_host_data(data: Sequence[Any], device: str | None) -> tuple[int, dict[str, Any]]:
    """Return the bytes that an upload of host arrays copies, and its event's details.

    The dtype and the shape are those of the largest array. `detail["key"]` joins the fingerprints of the largest
    arrays; rules use it to recognise repeated uploads.
    """
    nbytes = sum(array.size * _jax_dtype(array.dtype).itemsize for array in data)
    largest = max(data, key=_nbytes)
    dtype = _jax_dtype(largest.dtype)
    detail = {"dtype": _dtype_name(dtype), "shape": list(largest.shape)}
    return nbytes, detail | ({"device": device} if device else {}) | _describe_host_side(data, dtype)


def estimate_upload_end(start: int, end: int, nbytes: int) -> int:
    """Return the estimated end of an upload inside a call.

    `start` is the start of the upload, and `end` is the end of the call. All times are nanoseconds.
    """
    return min(end, start + _NS_PER_UPLOAD + nbytes // _BYTES_PER_NS)


def _describe_host_side(data: Sequence[Any], dtype: Any) -> dict[str, Any]:
    """Return the fingerprints of host data, and its dtype if it differs from `dtype`.

    `dtype` is the dtype on the device. The host dtype is that of the largest array.
    """
    by_size = sorted((array for array in data if array.nbytes >= _MIN_FINGERPRINT_NBYTES), key=_nbytes, reverse=True)
    keys = [fingerprint(array) for array in by_size[:_MAX_FINGERPRINTS]]
    host_dtype = max(data, key=_nbytes).dtype
    detail = {"from_dtype": _dtype_name(host_dtype)} if host_dtype != dtype else {}
    return detail | ({"key": " ".join(keys)} if keys and all(keys) else {})


def _nbytes(array: Any) -> int:
    return int(array.nbytes)


def _jax_dtype(dtype: Any) -> Any:
    """Return the dtype after conversion by JAX, which shortens 64-bit dtypes unless x64 is enabled."""
    return jax.dtypes.canonicalize_dtype(dtype)


@lru_cache(maxsize=64)
def _format_devices(sharding: Any) -> str:
    devices = sorted(sharding.device_set, key=lambda device: int(device.id))
    return f"{devices[0].platform}:{','.join(str(device.id) for device in devices)}"


@lru_cache(maxsize=64)
def _dtype_name(dtype: Any) -> str:
    return str(dtype)
