"""Fingerprints of host tensors, read from their memory without any operation of PyTorch."""

from typing import Any

import numpy as np
import torch

from forebay.doctor.capture.data_fingerprint import fingerprint

__all__ = ["fingerprint_of_tensor", "owns_memory"]

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_numpy_type_names: dict[Any, str] = {}  # dtype of PyTorch -> type string of NumPy


class _ArrayInterface:
    """Memory that NumPy can read."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def owns_memory(tensor: Any) -> bool:
    """Whether a tensor surely has its own memory; a subclass may be a wrapper or a fake tensor."""
    return type(tensor) in _PLAIN_TYPES and tensor.layout is torch.strided


def fingerprint_of_tensor(tensor: Any) -> str:
    """Return the fingerprint that an array of the same data has; "" if the memory cannot be read."""
    if not owns_memory(tensor) or not tensor.is_contiguous():
        return ""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # a tensor inside a transform, without memory
        return ""
    if not address:
        return ""
    shape, type_name = tuple(tensor.shape), _numpy_type_name(tensor.dtype)
    interface = {"data": (address, True), "shape": shape, "typestr": type_name, "version": 3}
    return fingerprint(np.asarray(_ArrayInterface(interface)))


def _numpy_type_name(dtype: Any) -> str:
    name = _numpy_type_names.get(dtype)
    if name is None:
        try:
            name = np.dtype(str(dtype).removeprefix("torch.")).str
        except TypeError:  # NumPy has no such type: read it as unsigned integers of the same size
            name = f"<u{dtype.itemsize}"
        _numpy_type_names[dtype] = name
    return name
