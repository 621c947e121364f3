"""Many copies to the device in one call of the driver."""

import ctypes
from typing import Any

from forebay.engines.cuda.driver import Stream, address_of
from forebay.engines.cuda.driver_calls import cuda_error

__all__ = ["BatchCopy"]

ANY_ORDER = 3  # CU_MEMCPY_SRC_ACCESS_ORDER_ANY: sources do not change until the copies are done


class BatchCopy:
    """Many host-to-device copies in one call: a DMA a row, no kernel; the arrays are NumPy's, not lists."""

    def __init__(self) -> None:
        # Drivers from CUDA 13 on have it; with older ones copies are issued one by one.
        self._call = getattr(ctypes.CDLL("libcuda.so.1"), "cuMemcpyBatchAsync_v2", None)
        self._attributes = _CopyAttributes(ANY_ORDER)
        self._first = ctypes.c_size_t(0)

    @property
    def at_once(self) -> bool:
        """Whether many copies really are one call."""
        return self._call is not None

    def upload(self, stream: Stream, targets: Any, sources: Any, nbytes: Any) -> None:
        """Addresses and lengths as arrays of uint64."""
        if self._call is None:
            for copy in zip(targets.tolist(), sources.tolist(), nbytes.tolist(), strict=True):
                stream.upload(*copy)
            return
        code = self._call(
            ctypes.c_void_p(address_of(targets)),
            ctypes.c_void_p(address_of(sources)),
            ctypes.c_void_p(address_of(nbytes)),
            ctypes.c_size_t(len(targets)),
            ctypes.byref(self._attributes),
            ctypes.byref(self._first),
            ctypes.c_size_t(1),
            ctypes.c_void_p(stream.handle),
        )
        if code:
            raise cuda_error(code, f"copying {len(targets)} rows to the device")


class _CopyAttributes(ctypes.Structure):
    """CUmemcpyAttributes: when the source is read, where both sides are (left open), and flags (none)."""

    _fields_ = (
        ("order", ctypes.c_int),
        ("source_kind", ctypes.c_int),
        ("source_id", ctypes.c_int),
        ("target_kind", ctypes.c_int),
        ("target_id", ctypes.c_int),
        ("flags", ctypes.c_uint),
    )

    def __init__(self, order: int) -> None:
        super().__init__(order, 0, 0, 0, 0, 0)
