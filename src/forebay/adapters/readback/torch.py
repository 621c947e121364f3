"""Read-back and finite check for PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forebay.adapters.readback.base import CompletedCopy, PendingCopy, start_grouped_copies
from forebay.adapters.readback.device_readers import DeviceArray, DeviceReaders

__all__ = ["HostCopier", "all_finite"]

_REDUCIBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class HostCopier:
    """Copies results on the device, in stream order. A stream of Forebay copies these to the host."""

    def __init__(self, limit: int) -> None:
        self._readers = DeviceReaders(limit)

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        return start_grouped_copies([_snapshot(leaf) for leaf in leaves], _cuda_index, self._start_copy_from)

    def _start_copy_from(self, index: int | None, snapshots: list[Any]) -> PendingCopy:
        if index is None:
            return CompletedCopy([snapshot.cpu().numpy() for snapshot in snapshots])
        stream = int(torch.cuda.current_stream(index).cuda_stream)
        arrays = [_device_array(snapshot) for snapshot in snapshots]
        pending: PendingCopy = self._readers.reader_for(index).start_copy(arrays, stream)
        return pending

    def close(self) -> None:
        self._readers.close()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Check the minimum and maximum of each leaf. Both are NaN if any value is NaN."""
    device = leaves[0].device
    filled = [values for values in map(_checkable_values, leaves) if values.numel()]
    bounds = [bound.to(device) for values in filled for bound in torch.aminmax(values)]
    if not bounds:
        return torch.ones((), dtype=torch.bool, device=device)
    return torch.isfinite(torch.stack(bounds)).all()


def _snapshot(tensor: Any) -> Any:
    """Return a dense private copy in a dtype that NumPy has."""
    values = _dense(tensor.detach()).resolve_conj().resolve_neg()
    if values.dtype.is_floating_point and values.dtype not in (torch.float16, torch.float32, torch.float64):
        return values.float().contiguous()
    return values.clone(memory_format=torch.contiguous_format)


def _dense(tensor: Any) -> Any:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _cuda_index(snapshot: Any) -> int | None:
    return snapshot.get_device() if snapshot.is_cuda else None


def _device_array(snapshot: Any) -> DeviceArray:
    dtype = np.dtype(str(snapshot.dtype).removeprefix("torch."))
    return DeviceArray(snapshot.data_ptr(), tuple(snapshot.shape), dtype, snapshot)


def _checkable_values(tensor: Any) -> Any:
    """Return the values that may be NaN or infinite, as real numbers that PyTorch can reduce."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = (values.coalesce() if values.is_sparse else values).values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.dtype.is_floating_point:
        return values.new_empty(0)
    return values if values.dtype in _REDUCIBLE else values.float()
