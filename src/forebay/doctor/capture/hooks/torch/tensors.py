"""What calls on PyTorch's tensors do: what crosses between host and device, and what somebody waits for.

Each function is told of a call that has ended, by its result and its arguments, and says what it was.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from forebay.doctor.capture.data_fingerprint import key_of
from forebay.doctor.capture.hooks.torch.fingerprint import key_of_tensor, owns_memory
from forebay.doctor.capture.hooks.torch.watcher import Found
from forebay.doctor.model.events import Kind

__all__ = ["assigned", "converted", "copied", "indexed", "moved", "printed", "read", "viewed", "waited"]

SMALLEST_KEYED_NBYTES = 1 << 10  # less is no data worth uploading once
MOST_PRINTED = 1000  # elements of a tensor; of a larger one only the ends are shown
COUNT_NBYTES = 8  # what comes back where a shape depends on values


class _Names(dict[Any, str]):
    """Of devices and types, which say their names slowly."""

    def __missing__(self, value: Any) -> str:
        name = self[value] = str(value).removeprefix("torch.")
        return name


_names = _Names()
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def read(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """Values became Python's: `item`, `tolist`, `float()`."""
    return Kind.DOWNLOAD, args[0].nbytes, _about(args[0])


def viewed(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """`cpu` and `numpy`: no copy where the tensor lies on the host."""
    tensor = args[0]
    if tensor.is_cpu:
        return Kind.DOWNLOAD, 0, _about(tensor) | {"copied": False}
    return read(result, args, kwargs)


def printed(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """A tensor became text."""
    tensor = args[0]
    return Kind.DOWNLOAD, min(tensor.nbytes, MOST_PRINTED * tensor.element_size()), _about(tensor)


def waited(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """An answer, or the shape of a result, depends on values that lie on a device: `nonzero`, `equal`."""
    tensor = args[0] if args else kwargs["input"]
    return None if tensor.is_cpu else _counted(tensor)


def moved(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """`to` and `cuda`: only what has left for another device."""
    tensor = args[0]
    if result is tensor or not _apart(tensor.device, result.device):
        return None
    return _crossed(tensor, result.device, result.dtype, non_blocking=_does_not_block(args, kwargs))


def copied(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """`target.copy_(source)`, where the two lie apart."""
    target, source = args[0], args[1] if len(args) > 1 else kwargs["src"]
    if not _apart(source.device, target.device):
        return None
    return _crossed(source, target.device, target.dtype, non_blocking=_does_not_block(args, kwargs))


def assigned(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """`tensor[index] = value`, where the value has to cross."""
    target, _, value = args
    if isinstance(value, torch.Tensor) and _apart(value.device, target.device):
        return _crossed(value, target.device, target.dtype, non_blocking=False)
    if isinstance(value, np.ndarray) and not target.is_cpu:
        return Kind.UPLOAD, value.nbytes, _about(target) | {"shape": list(value.shape)} | _of_array(value)
    return None


def indexed(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """`tensor[index]`: a mask on the device is counted before there is a shape, an index on the host is uploaded."""
    tensor, index = args
    if tensor.is_cpu:
        return None
    for part in index if isinstance(index, tuple) else (index,):
        if not isinstance(part, torch.Tensor):
            continue
        if part.device == tensor.device and part.dtype in (torch.bool, torch.uint8):
            return _counted(part)
        if part.is_cpu and part.dim() > 0:
            return _crossed(part, tensor.device, part.dtype, non_blocking=False)
    return None


def converted(result: Any, args: Args, kwargs: Kwargs) -> Found | None:
    """Data of NumPy's or Python's became a tensor."""
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if isinstance(data, torch.Tensor):
        if not _apart(data.device, result.device):
            return None
        return _crossed(data, result.device, result.dtype, non_blocking=False)
    if isinstance(data, np.ndarray) and _shares(result, data):
        return Kind.UPLOAD, 0, _about(result) | {"from_dtype": str(data.dtype), "copied": False}
    detail = _about(result) | ({} if result.is_cpu else {"pinned": False, "non_blocking": False})
    if isinstance(data, np.ndarray):
        return Kind.UPLOAD, result.nbytes, detail | _of_array(data)
    return Kind.UPLOAD, result.nbytes, detail | {"from_dtype": type(data).__name__} | _keyed(result)


def _counted(tensor: Any) -> Found | None:
    about = _about(tensor)
    symbols = any(type(size) is not int for size in about["shape"])  # somebody traces shapes
    return None if symbols else (Kind.DOWNLOAD, COUNT_NBYTES, about)


def _crossed(source: Any, device: Any, dtype: Any, *, non_blocking: bool) -> Found:
    """Types are converted on the host: what is uploaded is of the new type, what comes back of the old."""
    about = _about(source)
    if source.is_cpu:
        detail = {"device": _names[device], "dtype": _names[dtype], "from_dtype": about["dtype"]}
        detail |= {"non_blocking": non_blocking, **_pinned(source, device), **_keyed(source)}
        return Kind.UPLOAD, _nbytes(source, dtype), about | detail
    nbytes = _nbytes(source, source.dtype)
    if device.type == "cpu":
        return Kind.DOWNLOAD, nbytes, about | {"non_blocking": non_blocking}
    return Kind.MOVE, nbytes, about | {"op": "copy", "source": about["device"], "target": _names[device]}


def _apart(device: Any, other: Any) -> bool:
    return bool(device != other and not device.type == other.type == "cpu")  # "cpu:0" is "cpu"


def _about(tensor: Any) -> dict[str, Any]:
    try:
        return _described(tensor.device, tensor.dtype, tensor.shape)
    except TypeError:  # a symbol, where somebody traces shapes, is not remembered
        return _described.__wrapped__(tensor.device, tensor.dtype, tensor.shape)


@lru_cache(maxsize=1024)
def _described(device: Any, dtype: Any, shape: Any) -> dict[str, Any]:
    """One for all tensors that are alike, as events keep it; nobody writes into it."""
    return {"device": _names[device], "dtype": _names[dtype], "shape": list(shape)}


def _nbytes(tensor: Any, dtype: Any) -> int:
    """As this type; of a sparse tensor the values, without what says where they belong."""
    count = tensor._nnz() if tensor.is_sparse else tensor.numel()
    return count * dtype.itemsize  # type: ignore[no-any-return]  # a symbol, where somebody traces shapes


def _does_not_block(args: Args, kwargs: Kwargs) -> bool:
    """Whatever stands before it, the first truth value among the arguments is `non_blocking`."""
    given = kwargs.get("non_blocking")
    return bool(next((value for value in args if isinstance(value, bool)), False) if given is None else given)


def _pinned(source: Any, device: Any) -> dict[str, bool]:
    if not owns_memory(source) or torch._C._len_torch_dispatch_stack():
        return {}  # it cannot be told, or somebody watches every operation, and to ask is one
    if device.type == "meta" and not torch.cuda.is_initialized():
        return {"pinned": False}  # asking would start CUDA
    return {"pinned": source.is_pinned()}


def _keyed(tensor: Any) -> dict[str, str]:
    if not tensor.is_cpu or not owns_memory(tensor) or tensor.nbytes < SMALLEST_KEYED_NBYTES:
        return {}
    key = key_of_tensor(tensor)
    return {"key": key} if key else {}


def _of_array(array: Any) -> dict[str, str]:
    key = key_of(array) if array.nbytes >= SMALLEST_KEYED_NBYTES else ""
    return {"from_dtype": str(array.dtype)} | ({"key": key} if key else {})


def _shares(tensor: Any, array: Any) -> bool:
    if not tensor.is_cpu or not owns_memory(tensor):
        return False
    return bool(tensor.data_ptr() == array.__array_interface__["data"][0])
