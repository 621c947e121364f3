"""Whether a tensor on the host holds the same data as another: its memory is sampled, by no operation of torch's."""

from typing import Any

import numpy as np
import torch

from forebay.doctor.capture.data_fingerprint import key_of

__all__ = ["key_of_tensor", "owns_memory"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_type_names: dict[Any, str] = {}  # of torch's types, as NumPy writes them


class _Memory:
    """Memory that NumPy may look at."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def owns_memory(tensor: Any) -> bool:
    """Whether there is a stretch of memory behind it for sure: a subclass may be a wrapper, or fake."""
    return type(tensor) in _PLAIN and tensor.layout is torch.strided


def key_of_tensor(tensor: Any) -> str:
    """The key that an array of the same data has; none where its memory does not tell."""
    if not owns_memory(tensor) or not tensor.is_contiguous():
        return ""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # it is being transformed, and only a name for something else
        return ""
    if not address:
        return ""
    interface = {"data": (address, True), "shape": tuple(tensor.shape), "typestr": _type(tensor.dtype), "version": 3}
    return key_of(np.asarray(_Memory(interface)))


def _type(dtype: Any) -> str:
    name = _type_names.get(dtype)
    if name is None:
        try:
            name = np.dtype(str(dtype).removeprefix("torch.")).str
        except TypeError:  # NumPy has no such type: bytes are bytes
            name = f"<u{dtype.itemsize}"
        _type_names[dtype] = name
    return name
