"""Results in CuPy."""

from collections.abc import Sequence
from typing import Any

import cupy as cp

from forebay.adapters.readback.base import Pending, fetch_grouped
from forebay.adapters.readback.device_readers import DeviceArray, Readers

__all__ = ["Fetcher", "all_finite"]


class Fetcher:
    """A copy on the device, in the order of its other work, goes to the host on a stream of its own."""

    def __init__(self, limit: int) -> None:
        self._readers = Readers(limit)

    def fetch(self, leaves: Sequence[Any]) -> Pending:
        return fetch_grouped(leaves, lambda leaf: int(leaf.device.id), self._fetch_from)

    def _fetch_from(self, index: int, leaves: list[Any]) -> Pending:
        with cp.cuda.Device(index):
            snapshots = [leaf.copy(order="C") for leaf in leaves]
            stream = int(cp.cuda.get_current_stream().ptr)
        pending: Pending = self._readers.at(index).fetch([_device_array(snapshot) for snapshot in snapshots], stream)
        return pending

    def close(self) -> None:
        self._readers.close()


def all_finite(leaves: Sequence[Any]) -> Any:
    """On the device of the first leaf."""
    with leaves[0].device:
        checks = [cp.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind not in "biu"]
        return cp.stack(checks).all() if checks else cp.ones((), bool)


def _device_array(snapshot: Any) -> DeviceArray:
    return DeviceArray(int(snapshot.data.ptr), snapshot.shape, snapshot.dtype, snapshot)
