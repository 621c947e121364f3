"""Results in PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forebay.adapters.readback.base import Arrived, Pending, fetch_grouped
from forebay.adapters.readback.device_readers import DeviceArray, Readers

__all__ = ["Fetcher", "all_finite"]

_REDUCIBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Fetcher:
    """A copy on the device, in the order of its other work, goes to the host on a stream of its own."""

    def __init__(self, limit: int) -> None:
        self._readers = Readers(limit)

    def fetch(self, leaves: Sequence[Any]) -> Pending:
        return fetch_grouped([_snapshot(leaf) for leaf in leaves], _cuda_index, self._fetch_from)

    def _fetch_from(self, index: int | None, snapshots: list[Any]) -> Pending:
        if index is None:
            return Arrived([snapshot.cpu().numpy() for snapshot in snapshots])
        stream = int(torch.cuda.current_stream(index).cuda_stream)
        pending: Pending = self._readers.at(index).fetch([_device_array(snapshot) for snapshot in snapshots], stream)
        return pending

    def close(self) -> None:
        self._readers.close()


def all_finite(leaves: Sequence[Any]) -> Any:
    """One pass a leaf: its least and its greatest value tell, for both are NaN as soon as one value is."""
    device = leaves[0].device
    filled = [values for values in map(_floats, leaves) if values.numel()]
    bounds = [bound.to(device) for values in filled for bound in torch.aminmax(values)]
    if not bounds:
        return torch.ones((), dtype=torch.bool, device=device)
    return torch.isfinite(torch.stack(bounds)).all()


def _snapshot(tensor: Any) -> Any:
    """A dense copy that nobody else sees, in a type that NumPy has."""
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


def _floats(tensor: Any) -> Any:
    """The values that can be anything but finite, as real numbers that can be reduced."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = (values.coalesce() if values.is_sparse else values).values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.dtype.is_floating_point:
        return values.new_empty(0)
    return values if values.dtype in _REDUCIBLE else values.float()
