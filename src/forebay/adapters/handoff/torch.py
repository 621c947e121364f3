"""The hand-off to PyTorch: `from_numpy` for host memory, DLPack for device memory."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from forebay.core.handoff import StreamMarker, compact_rows, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["TorchArrayOps", "TorchDeviceHandOff", "TorchHandOff", "to_sparse_on_device"]


class TorchHandOff:
    """Hands off tensors that use the slot's memory. Each tensor keeps its root alive."""

    name = "torch"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("PyTorch", specs, names, supported_kinds="biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(torch.from_numpy, roots))

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        # NumPy selects values six times as fast as PyTorch does on the CPU.
        parts = compact_rows(values.numpy(), columns.numpy(), counts.numpy())
        compact_values, compact_columns, starts = map(torch.from_numpy, parts)
        return _sparse_tensor(compact_values, compact_columns, starts, (len(values), width))

    def join_ragged(self, values: Any, offsets: Any) -> Any:
        """Return a jagged nested tensor."""
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.to(_torch_dtype(dtype))

    def array_ops(self) -> "TorchArrayOps":
        return TorchArrayOps()

    def for_device(self, index: int | None) -> "TorchDeviceHandOff":
        return TorchDeviceHandOff(index)


class TorchDeviceHandOff(TorchHandOff):
    """Hands off tensors on a GPU. PyTorch reports the current stream of each thread."""

    syncs_on_import = False  # PyTorch does not wait for the rows of an array that it imports

    def __init__(self, index: int | None) -> None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (index or 0) >= count:
            advice = "Pass one of them" if count else "Install a CUDA build of torch"
            raise DeviceError(
                f"PyTorch {torch.__version__} finds no device cuda:{index or 0}. It can use {count} GPUs. {advice}, or "
                "pass device='cpu'."
            )
        torch.cuda.init()
        self.index = torch.cuda.current_device() if index is None else index

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            owner = torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{self.index}")
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"PyTorch could not allocate {nbytes} bytes on cuda:{self.index}. Make batches smaller, or free device "
                f"memory. PyTorch reports: {error}"
            ) from error
        return owner.data_ptr(), owner

    def available(self, free: int, total: int) -> int:
        unused = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        return free + int(unused)

    def stream(self) -> int:
        return _get_stream_handle(self.index)

    def record_stream(self, owner: Any) -> None:
        """Tell PyTorch's pool that the current stream uses the memory.

        Return None, because PyTorch never destroys a stream, so nothing needs to keep it alive.
        """
        if _get_stream_handle(self.index):  # the pool knows stream 0, on which worker threads allocate
            owner.record_stream(torch.cuda.current_stream(self.index))

    def mark(self) -> StreamMarker:
        raise AssertionError("mark() must not be called: stream() returns PyTorch's stream")

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        return to_sparse_on_device(values, columns, counts, width)

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        dense = torch.zeros((len(values), width), dtype=values.dtype, device=values.device)
        return dense.scatter_(1, columns.to(torch.int64), values)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [from_dlpack(root.capsule()) for root in roots]


def to_sparse_on_device(values: Any, columns: Any, counts: Any, width: int) -> Any:
    """Return a sparse tensor that the device computes; `SparseTensorHandOff.to_sparse` has the arguments."""
    is_value = torch.arange(values.shape[1], device=values.device) < counts[:, None]
    starts = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    return _sparse_tensor(values[is_value], columns[is_value], starts, (len(values), width))


def _sparse_tensor(values: Any, columns: Any, starts: Any, size: tuple[int, int]) -> Any:
    # Pass check_invariants to avoid a warning of PyTorch. False: Forebay has checked the matrix already.
    return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)


class TorchArrayOps:
    """Array operations of PyTorch, without gradients. `ArrayOps` documents the methods."""

    minimum = staticmethod(torch.minimum)
    maximum = staticmethod(torch.maximum)
    floor = staticmethod(torch.floor)
    where = staticmethod(torch.where)

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype).removeprefix("torch.")

    def upload(self, array: Any, like: Any) -> Any:
        return torch.from_numpy(array).to(like.device, non_blocking=True)

    def to_float(self, array: Any) -> Any:
        return array.to(torch.float32)

    def to_integer(self, array: Any) -> Any:
        return array.to(torch.int64)  # PyTorch converts indices of other dtypes to int64

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.to(_torch_dtype(dtype))

    def gather(self, array: Any, indices: Any, axis: int) -> Any:
        rows = torch.arange(array.shape[0], device=array.device)
        if axis == 1:
            return array[rows[:, None], indices]
        image_rows = torch.arange(array.shape[1], device=array.device)
        return array[rows[:, None, None], image_rows[:, None], indices[:, None]]

    def clip(self, array: Any, low: float, high: float | None = None) -> Any:
        return torch.clamp(array, low, high)

    def flip(self, array: Any, axis: int) -> Any:
        return torch.flip(array, (axis,))

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return torch.cat(tuple(arrays), dim=-1)

    def mean(self, array: Any) -> Any:
        return array.mean(dim=(1, 2, 3), keepdim=True)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.no_grad()(function)  # type: ignore[no-any-return]  # PyTorch is untyped here


def _public_stream_handle(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


# Forebay calls this for every batch. The public function takes ten times as long, because it creates an object.
_get_stream_handle: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream_handle)


def _torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the PyTorch dtype of a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype
