"""Descriptions of eager tensors: bytes, dtype, shape and device.

The functions are a hot path, so they cache their results.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import dtypes, ops

from forebay.doctor.capture.data_fingerprint import fingerprint

__all__ = [
    "EagerTensor",
    "ElementType",
    "describe_tensor",
    "device_of",
    "element_type_of",
    "fingerprint_of_array",
    "fingerprint_of_tensor",
    "nbytes_of",
]

EagerTensor: Any = ops.EagerTensor

MIN_DATA_NBYTES = 1 << 10  # smaller arrays are a few numbers, not training data


class ElementType(NamedTuple):
    """The type of the elements of a tensor."""

    name: str
    nbytes: int  # 0 if an element has no fixed size: a string, a handle
    is_data: bool  # False for a handle: a copy of a handle does not copy the data
    is_integer: bool  # also True for booleans

    def is_bookkeeping(self, nbytes: int) -> bool:
        """Whether a tensor of this type and size probably holds indices or shapes, not data."""
        return self.is_integer and nbytes < MIN_DATA_NBYTES


@lru_cache
def element_type_of(datatype: Any) -> ElementType:
    dtype = dtypes.as_dtype(datatype)
    is_integer = bool(dtype.is_integer or dtype.is_bool)
    return ElementType(dtype.name, dtype.size or 0, bool(dtype.is_numpy_compatible), is_integer)


def describe_tensor(tensor: Any) -> dict[str, Any]:
    return _describe(tensor.device, tensor._datatype_enum(), tensor._shape_tuple())


@lru_cache(maxsize=1024)
def _describe(device: str, datatype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return a cached dict, which events of tensors with equal properties share.

    Callers must not change it.
    """
    return {"device": _short_name(device), "dtype": element_type_of(datatype).name, "shape": list(shape)}


def nbytes_of(tensor: Any) -> int:
    return int(tensor._num_elements()) * element_type_of(tensor._datatype_enum()).nbytes


def device_of(tensor: Any) -> str:
    """Return the short name of the device, such as `CPU:0`."""
    return _short_name(tensor.device)


@lru_cache
def _short_name(device: str) -> str:
    return device.rpartition("device:")[2]


def fingerprint_of_array(array: Any) -> str:
    """Return the fingerprint of a NumPy array; "" for small arrays and other objects."""
    return fingerprint(array) if isinstance(array, np.ndarray) and array.nbytes >= MIN_DATA_NBYTES else ""


def fingerprint_of_tensor(tensor: Any) -> str:
    """Return the fingerprint of a tensor; "" if it is small or on a device."""
    return fingerprint_of_array(np.asarray(tensor)) if device_of(tensor).startswith("CPU") else ""
