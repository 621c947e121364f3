"""What is said of an eager tensor: bytes, type, shape and the device it is on. Asked often, so it is asked cheaply."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import dtypes, ops

from forebay.doctor.capture.data_fingerprint import key_of

__all__ = ["EagerTensor", "Element", "about", "element_of", "key_of_array", "key_of_tensor", "nbytes_of", "place_of"]

EagerTensor: Any = ops.EagerTensor

SMALLEST = 1 << 10  # bytes; less is a number or two


class Element(NamedTuple):
    """One element of a tensor."""

    name: str
    nbytes: int  # none where it has no size of its own: a string, a handle
    is_data: bool  # not a handle, which stands for something that stays where it is
    is_whole: bool

    def counts_with(self, nbytes: int) -> bool:
        """Whether so much of it is axes, indices or shapes, which frameworks hand around on the host, and no data."""
        return self.is_whole and nbytes < SMALLEST


@lru_cache
def element_of(datatype: Any) -> Element:
    kind = dtypes.as_dtype(datatype)
    whole = bool(kind.is_integer or kind.is_bool)
    return Element(kind.name, kind.size or 0, bool(kind.is_numpy_compatible), whole)


def about(tensor: Any) -> dict[str, Any]:
    return _described(tensor.device, tensor._datatype_enum(), tensor._shape_tuple())


@lru_cache(maxsize=1024)
def _described(device: str, datatype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """One for all tensors that are alike, as events keep it; nobody writes into it."""
    return {"device": _short(device), "dtype": element_of(datatype).name, "shape": list(shape)}


def nbytes_of(tensor: Any) -> int:
    return int(tensor._num_elements()) * element_of(tensor._datatype_enum()).nbytes


def place_of(tensor: Any) -> str:
    """`CPU:0`, of a device's long name."""
    return _short(tensor.device)


@lru_cache
def _short(device: str) -> str:
    return device.rpartition("device:")[2]


def key_of_array(array: Any) -> str:
    return key_of(array) if isinstance(array, np.ndarray) and array.nbytes >= SMALLEST else ""


def key_of_tensor(tensor: Any) -> str:
    """Of one in host memory, which NumPy reads where it lies."""
    return key_of_array(np.asarray(tensor)) if place_of(tensor).startswith("CPU") else ""
