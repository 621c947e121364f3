"""Read-back and check for finite values for PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forebay.adapters.readback.base import CompletedCopy, DeviceArray, PendingCopy, start_grouped_copies
from forebay.adapters.readback.device_readers import DeviceReaders

__all__ = ["HostCopier", "all_finite"]

# floating-point dtypes that torch.aminmax accepts
_REDUCIBLE_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class HostCopier:
    """Copies arrays to the host in two steps.

    PyTorch first copies them on their device, after the work that computes them. Then a stream of Forebay copies these
    snapshots to the host. So the program may change the tensors after `start_copy`. Host tensors need only the first
    step. From devices other than NVIDIA GPUs, PyTorch itself copies the snapshots, and `start_copy` waits for it.
    """

    def __init__(self, max_copies: int) -> None:
        self._readers = DeviceReaders(max_copies)

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        return start_grouped_copies([_snapshot(leaf) for leaf in leaves], _device_index, self._start_snapshot_copy)

    def _start_snapshot_copy(self, index: int | None, snapshots: list[Any]) -> PendingCopy:
        if index is None:
            return CompletedCopy([snapshot.cpu().numpy() for snapshot in snapshots])
        stream = int(torch.cuda.current_stream(index).cuda_stream)
        arrays = [_device_array(snapshot) for snapshot in snapshots]
        pending: PendingCopy = self._readers.reader_for(index).start_copy(arrays, stream)
        return pending

    def close(self) -> None:
        self._readers.close()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Return whether all values are finite, as a boolean on the first leaf's device.

    It is enough to check the minimum and the maximum of each leaf, because both are NaN if any value is NaN.
    """
    device = leaves[0].device
    non_empty = [values for values in map(_checkable_values, leaves) if values.numel()]
    bounds = [bound.to(device) for values in non_empty for bound in torch.aminmax(values)]
    if not bounds:
        return torch.ones((), dtype=torch.bool, device=device)
    return torch.isfinite(torch.stack(bounds)).all()


def _snapshot(tensor: Any) -> Any:
    """Return a dense copy of a tensor, in a dtype that NumPy has."""
    values = _as_dense(tensor.detach()).resolve_conj().resolve_neg()
    if values.dtype.is_floating_point and values.dtype not in (torch.float16, torch.float32, torch.float64):
        return values.float().contiguous()
    return values.clone(memory_format=torch.contiguous_format)


def _as_dense(tensor: Any) -> Any:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _device_index(snapshot: Any) -> int | None:
    """Return the index of the tensor's NVIDIA GPU, or None for other devices."""
    is_on_nvidia_gpu = snapshot.is_cuda and torch.version.hip is None  # PyTorch also names AMD GPUs "cuda"
    return snapshot.get_device() if is_on_nvidia_gpu else None


def _device_array(snapshot: Any) -> DeviceArray:
    dtype = np.dtype(str(snapshot.dtype).removeprefix("torch."))
    return DeviceArray(snapshot.data_ptr(), tuple(snapshot.shape), dtype, snapshot)


def _checkable_values(tensor: Any) -> Any:
    """Return the values that may be NaN or infinite, in a dtype of `_REDUCIBLE_DTYPES`."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = (values.coalesce() if values.is_sparse else values).values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.dtype.is_floating_point:
        return values.new_empty(0)
    return values if values.dtype in _REDUCIBLE_DTYPES else values.float()
