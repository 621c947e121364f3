"""Descriptions of calls on tensors: transfers between host and device, and waits.

Each public function gets the result and the arguments of a call, and returns the description of its event, or None if
the call is not recorded.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.capture.hooks.pieces import pieces_detail
from forebay.doctor.capture.hooks.torch.call_hooks import Description
from forebay.doctor.capture.hooks.torch.fingerprint import fingerprint_of_tensor, has_dense_memory
from forebay.doctor.model.events import EventKind

__all__ = [
    "describe_assignment",
    "describe_conversion",
    "describe_copy",
    "describe_move",
    "describe_print",
    "describe_read",
    "describe_read_or_view",
    "describe_wait",
]

MIN_FINGERPRINT_NBYTES = 1 << 10  # smaller tensors are a few numbers, not training data
MAX_PRINTED_ELEMENTS = 1000  # of a larger tensor, PyTorch prints only the first and last elements
COUNT_NBYTES = 8  # size of the number that PyTorch reads back if the shape of a result depends on values


class _Names(dict[Any, str]):
    """A cache of the names of devices and dtypes, because formatting them is slow."""

    def __missing__(self, value: Any) -> str:
        name = self[value] = str(value).removeprefix("torch.")
        return name


_names = _Names()
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def describe_read(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe calls that return Python values, such as `item`, `tolist` and `float(tensor)`."""
    return EventKind.DOWNLOAD, args[0].nbytes, _describe_tensor(args[0])


def describe_read_or_view(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe `cpu` and `numpy`, which read a tensor back.

    For a tensor on the host, they copy nothing.
    """
    tensor = args[0]
    if tensor.is_cpu:
        return EventKind.DOWNLOAD, 0, _describe_tensor(tensor) | {"copied": False}
    return describe_read(result, args, kwargs)


def describe_print(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe the conversion of a tensor to text."""
    tensor = args[0]
    nbytes = min(tensor.nbytes, MAX_PRINTED_ELEMENTS * tensor.element_size())
    return EventKind.DOWNLOAD, nbytes, _describe_tensor(tensor)


def describe_wait(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe calls such as `nonzero` and `equal`, which wait for values on the device."""
    tensor = args[0] if args else kwargs["input"]
    return None if tensor.is_cpu else _describe_count(tensor)


def describe_move(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe `to` and `cuda`, if the device changes."""
    tensor = args[0]
    if result is tensor or not _are_different_devices(tensor.device, result.device):
        return None
    return _describe_transfer(tensor, result.device, result.dtype, non_blocking=_is_non_blocking(args, kwargs))


def describe_copy(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe `target.copy_(source)` between two devices."""
    target, source = args[0], args[1] if len(args) > 1 else kwargs["src"]
    if not _are_different_devices(source.device, target.device):
        return None
    return _describe_transfer(source, target.device, target.dtype, non_blocking=_is_non_blocking(args, kwargs))


def describe_assignment(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe `tensor[index] = value`, if the value is a tensor or array on another device."""
    target, _, value = args
    if isinstance(value, torch.Tensor) and _are_different_devices(value.device, target.device):
        return _describe_transfer(value, target.device, target.dtype, non_blocking=False)
    if isinstance(value, np.ndarray) and not target.is_cpu:
        detail = _describe_tensor(target) | {"shape": list(value.shape)} | _describe_array(value)
        return EventKind.UPLOAD, value.nbytes, detail
    return None


def describe_conversion(result: Any, args: Args, kwargs: Kwargs) -> Description | None:
    """Describe the conversion of NumPy or Python data to a tensor."""
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if isinstance(data, torch.Tensor):
        if not _are_different_devices(data.device, result.device):
            return None
        return _describe_transfer(data, result.device, result.dtype, non_blocking=False)
    if isinstance(data, np.ndarray) and _shares_memory(result, data):
        detail = _describe_tensor(result) | {"from_dtype": str(data.dtype), "copied": False}
        return EventKind.UPLOAD, 0, detail
    detail = _describe_tensor(result) | ({} if result.is_cpu else {"pinned": False, "non_blocking": False})
    if isinstance(data, np.ndarray):
        return EventKind.UPLOAD, result.nbytes, detail | _describe_array(data)
    if isinstance(data, list | tuple) and (pieces := pieces_detail(data)):
        detail |= {"from_dtype": str(data[0].dtype)} | pieces | _describe_fingerprint(result)
        return EventKind.UPLOAD, result.nbytes, detail
    detail |= {"from_dtype": type(data).__name__} | _describe_fingerprint(result)
    return EventKind.UPLOAD, result.nbytes, detail


def _describe_count(tensor: Any) -> Description | None:
    """Describe the read-back of an element count; None while the compiler traces with symbolic sizes."""
    detail = _describe_tensor(tensor)
    is_symbolic = any(type(size) is not int for size in detail["shape"])
    return None if is_symbolic else (EventKind.DOWNLOAD, COUNT_NBYTES, detail)


def _describe_transfer(source: Any, device: Any, dtype: Any, *, non_blocking: bool) -> Description:
    """Describe a copy to `device`, as a tensor of `dtype`.

    The host converts dtypes. So an upload copies data of the new dtype, and a read-back copies data of the old dtype.
    """
    detail = _describe_tensor(source)
    if source.is_cpu:
        changes = {"device": _names[device], "dtype": _names[dtype], "from_dtype": detail["dtype"]}
        changes |= {"non_blocking": non_blocking, **_describe_pinning(source, device), **_describe_fingerprint(source)}
        return EventKind.UPLOAD, _nbytes_as(source, dtype), detail | changes
    nbytes = _nbytes_as(source, source.dtype)
    if device.type == "cpu":
        return EventKind.DOWNLOAD, nbytes, detail | {"non_blocking": non_blocking}
    return EventKind.MOVE, nbytes, detail | {"op": "copy", "source": detail["device"], "target": _names[device]}


def _are_different_devices(device: Any, other: Any) -> bool:
    """Whether two devices differ. `cpu` and `cpu:0` are the same device."""
    return bool(device != other and not device.type == other.type == "cpu")


def _describe_tensor(tensor: Any) -> dict[str, Any]:
    try:
        return _describe(tensor.device, tensor.dtype, tensor.shape)
    except TypeError:  # the compiler traces with symbolic sizes, which cannot be hashed
        return _describe.__wrapped__(tensor.device, tensor.dtype, tensor.shape)


@lru_cache(maxsize=1024)
def _describe(device: Any, dtype: Any, shape: Any) -> dict[str, Any]:
    """Return a cached dict, which events of tensors with equal properties share.

    Callers must not change it.
    """
    return {"device": _names[device], "dtype": _names[dtype], "shape": list(shape)}


def _nbytes_as(tensor: Any, dtype: Any) -> int:
    """Return the bytes of the elements as `dtype`.

    Indices of a sparse tensor do not count.
    """
    count = tensor._nnz() if tensor.is_sparse else tensor.numel()
    return count * dtype.itemsize  # type: ignore[no-any-return]  # a symbolic size while the compiler traces


def _is_non_blocking(args: Args, kwargs: Kwargs) -> bool:
    """Return `non_blocking`: the keyword argument, or the first bool among the positional arguments."""
    keyword = kwargs.get("non_blocking")
    return bool(next((value for value in args if isinstance(value, bool)), False) if keyword is None else keyword)


def _describe_pinning(source: Any, device: Any) -> dict[str, bool]:
    """Return whether the source of an upload is page-locked; {} if unknown."""
    if not has_dense_memory(source) or torch._C._len_torch_dispatch_stack():
        return {}  # `is_pinned` is an operation, which a `TorchDispatchMode` of the script would see
    if device.type == "meta" and not torch.cuda.is_initialized():
        return {"pinned": False}  # `is_pinned` would initialize CUDA
    return {"pinned": source.is_pinned()}


def _describe_fingerprint(tensor: Any) -> dict[str, str]:
    if not tensor.is_cpu or not has_dense_memory(tensor) or tensor.nbytes < MIN_FINGERPRINT_NBYTES:
        return {}
    key = fingerprint_of_tensor(tensor)
    return {"key": key} if key else {}


def _describe_array(array: Any) -> dict[str, str]:
    """Return the dtype and the fingerprint of a NumPy array that is uploaded."""
    key = fingerprint(array) if array.nbytes >= MIN_FINGERPRINT_NBYTES else ""
    return {"from_dtype": str(array.dtype)} | ({"key": key} if key else {})


def _shares_memory(tensor: Any, array: Any) -> bool:
    if not tensor.is_cpu or not has_dense_memory(tensor):
        return False
    return bool(tensor.data_ptr() == array.__array_interface__["data"][0])
