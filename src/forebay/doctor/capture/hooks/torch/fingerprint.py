"""Fingerprints of host tensors, without PyTorch operations.

The doctor reads the memory directly, because a `TorchDispatchMode` of the script would see every PyTorch operation.
"""

from typing import Any

import numpy as np
import torch

from forebay.doctor.capture.data_fingerprint import fingerprint

__all__ = ["fingerprint_of_tensor", "has_dense_memory"]

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_numpy_type_names: dict[Any, str] = {}  # dtype of PyTorch -> type string of NumPy


class _ArrayInterface:
    """Lets NumPy read memory at an address, through the array interface protocol."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def has_dense_memory(tensor: Any) -> bool:
    """Whether a tensor is a plain tensor in dense memory.

    False for subclasses: they may be wrappers or fake tensors without memory.
    """
    return type(tensor) in _PLAIN_TYPES and tensor.layout is torch.strided


def fingerprint_of_tensor(tensor: Any) -> str:
    """Return the fingerprint of a host tensor, or "" if its memory cannot be read.

    A NumPy array with the same dtype, shape and data has the same fingerprint.
    """
    if not has_dense_memory(tensor) or not tensor.is_contiguous():
        return ""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # inside a function transform such as `torch.vmap`, a tensor has no memory
        return ""
    if not address:
        return ""
    shape, type_name = tuple(tensor.shape), _numpy_type_name(tensor.dtype)
    read_only = True
    interface = {"data": (address, read_only), "shape": shape, "typestr": type_name, "version": 3}
    return fingerprint(np.asarray(_ArrayInterface(interface)))


def _numpy_type_name(dtype: Any) -> str:
    name = _numpy_type_names.get(dtype)
    if name is None:
        try:
            name = np.dtype(str(dtype).removeprefix("torch.")).str
        except TypeError:  # NumPy lacks this type, such as bfloat16: read it as unsigned integers of the same size
            name = f"<u{dtype.itemsize}"
        _numpy_type_names[dtype] = name
    return name
