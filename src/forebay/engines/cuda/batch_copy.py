"""Many host-to-device copies in one driver call."""

import ctypes
from typing import Any

from forebay.core.c_functions import address_of
from forebay.engines.cuda.driver import Stream
from forebay.engines.cuda.driver_calls import cuda_error

__all__ = ["BatchCopy"]

ANY_ORDER = 3  # CU_MEMCPY_SRC_ACCESS_ORDER_ANY: the host does not change the sources until the copies are done


class BatchCopy:
    """Host-to-device copies by DMA, without a kernel: many rows in one driver call."""

    def __init__(self) -> None:
        # CUDA 13 added this driver call. With older drivers, Forebay makes one call per copy.
        self._call = getattr(ctypes.CDLL("libcuda.so.1"), "cuMemcpyBatchAsync_v2", None)
        self._attributes = _CopyAttributes(ANY_ORDER)
        self._first_copy = ctypes.c_size_t(0)  # `_attributes` apply from the copy with this index on, so to all copies

    @property
    def is_single_call(self) -> bool:
        """Whether the driver accepts many copies in one call."""
        return self._call is not None

    def upload(self, stream: Stream, targets: Any, sources: Any, nbytes: Any) -> None:
        """Queue copies on the stream. `targets`, `sources` (addresses) and `nbytes` are uint64 arrays."""
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
            ctypes.byref(self._first_copy),
            ctypes.c_size_t(1),
            ctypes.c_void_p(stream.handle),
        )
        if code:
            raise cuda_error(code, f"copying {len(targets)} rows to the device")


class _CopyAttributes(ctypes.Structure):
    """The C struct CUmemcpyAttributes.

    Forebay sets only the access order, no location hints and no flags.
    """

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
