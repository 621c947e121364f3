"""Read-back and check for finite values for CuPy."""

from collections.abc import Sequence
from typing import Any

import cupy as cp

from forebay.adapters.readback.base import DeviceArray, PendingCopy, start_grouped_copies
from forebay.adapters.readback.device_readers import DeviceReaders

__all__ = ["HostCopier", "all_finite"]


class HostCopier:
    """Copies arrays to the host in two steps.

    CuPy first copies them on the device, after the work that computes them. Then a stream of Forebay copies these
    snapshots to the host. So the program may change the arrays after `start_copy`.
    """

    def __init__(self, max_copies: int) -> None:
        self._readers = DeviceReaders(max_copies)

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        return start_grouped_copies(leaves, lambda leaf: int(leaf.device.id), self._start_snapshot_copy)

    def _start_snapshot_copy(self, index: int, leaves: list[Any]) -> PendingCopy:
        with cp.cuda.Device(index):
            snapshots = [leaf.copy(order="C") for leaf in leaves]
            stream = int(cp.cuda.get_current_stream().ptr)
        arrays = [_device_array(snapshot) for snapshot in snapshots]
        pending: PendingCopy = self._readers.reader_for(index).start_copy(arrays, stream)
        return pending

    def close(self) -> None:
        self._readers.close()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Return whether all values are finite, as a boolean on the first leaf's device."""
    with leaves[0].device:
        checks = [cp.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind not in "biu"]
        return cp.stack(checks).all() if checks else cp.ones((), bool)


def _device_array(snapshot: Any) -> DeviceArray:
    return DeviceArray(int(snapshot.data.ptr), snapshot.shape, snapshot.dtype, snapshot)
