"""Asks CUPTI to record, and reads what it recorded; the interpreter has no part in it while the script runs."""

import ctypes
from time import perf_counter_ns
from typing import Any

import numpy as np

from forebay.doctor.capture.device.cupti_library import open_buffers, open_cupti
from forebay.doctor.model.device_records import RECORD, Recorded, RecordKind, in_order
from forebay.errors import DeviceError

__all__ = ["Activity"]

RECORDED = (RecordKind.MEMCPY, RecordKind.MEMSET, RecordKind.CONCURRENT_KERNEL, RecordKind.SYNCHRONIZATION)
CALLS = (RecordKind.RUNTIME, RecordKind.DRIVER)  # XLA calls the driver, most others the runtime
# Calls that queue nothing and come by the thousand, by CUPTI's numbers, which never change: what the last error was,
# which device is meant, whether a stream is being captured, what a kernel is called.
CHATTER = {"cuptiActivityEnableRuntimeApi": (10, 16, 17, 317), "cuptiActivityEnableDriverApi": (303, 392, 719)}
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also buffers that are not full
_SMALLEST_RECORD = 32  # bytes: none of those asked for is smaller


class Activity:
    """CUPTI between `start` and `stop`; once a process at a time."""

    def __init__(self, cupti: Any = None, buffers: Any = None) -> None:
        self._cupti = cupti or open_cupti()
        self._buffers = buffers or open_buffers()
        if self._buffers.forebay_record_nbytes() != RECORD.itemsize:
            raise DeviceError("the C part of Forebay's doctor is of another version: install Forebay again.")
        self._clocks: list[tuple[int, int]] = []

    def start(self) -> None:
        """Record from now on."""
        self._call("cuptiActivityRegisterCallbacks", self._buffers.forebay_buffer_requested,
                   self._buffers.forebay_buffer_completed)  # fmt: skip
        for kind in (*RECORDED, *CALLS):
            self._call("cuptiActivityEnable", ctypes.c_int(kind))
        self._silence_chatter()
        self._clocks = [self._both_clocks()]

    def stop(self) -> Recorded:
        """Record no more, and leave the process as it was; everything since `start`."""
        self._clocks.append(self._both_clocks())
        for kind in (*RECORDED, *CALLS):
            self._cupti.cuptiActivityDisable(ctypes.c_int(kind))
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FORCED))
        records = self._read()
        records = _of_the_device(records[records["end"] > 0])  # what was not done by then has no times
        names = self._name(records)
        self._set_clock(records)
        recorded = Recorded(in_order(records), names, self._dropped(), self._version())
        # A launch costs a third more as long as CUPTI is attached, even where nothing is recorded any more.
        self._call("cuptiFinalize")
        return recorded

    def _silence_chatter(self) -> None:
        """Where CUPTI can be told so; what older ones record of it is left out in the end."""
        for name, numbers in CHATTER.items():
            enable = getattr(self._cupti, name, None)
            if enable is None:
                continue
            for number in numbers:
                enable(ctypes.c_uint32(number), ctypes.c_uint8(0))

    def _read(self) -> Any:
        room = self._buffers.forebay_buffer_nbytes() // _SMALLEST_RECORD
        parts, place = [np.empty(0, RECORD)], np.empty(room, RECORD)
        read, following = self._buffers.forebay_read, self._cupti.cuptiActivityGetNextRecord
        read.restype = ctypes.c_long
        while (count := read(following, ctypes.c_void_p(place.ctypes.data), ctypes.c_size_t(room))) >= 0:
            parts.append(place[:count].copy())
        return np.concatenate(parts)

    def _name(self, records: Any) -> tuple[str, ...]:
        """Kernels' names, read while they are there; records get their index."""
        pointers, indices = np.unique(records["name"], return_inverse=True)
        records["name"] = indices
        return tuple(ctypes.string_at(int(pointer)).decode(errors="replace") if pointer else "" for pointer in pointers)

    def _set_clock(self, records: Any) -> None:
        """From CUPTI's clock to that of the API ledger: both were read at the start and at the end."""
        (device_first, own_first), (device_last, own_last) = self._clocks
        rate = (own_last - own_first) / max(1, device_last - device_first)
        for name in ("start", "end"):
            passed = records[name].astype(np.int64) - device_first
            records[name] = (own_first + passed * rate).astype(np.uint64)

    def _both_clocks(self) -> tuple[int, int]:
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value, perf_counter_ns()

    def _dropped(self) -> int:
        count = ctypes.c_size_t()
        self._cupti.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(count))
        return int(count.value)

    def _version(self) -> int:
        version = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(version))
        return int(version.value)

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(getattr(self._cupti, name)(*arguments), name)

    def _check(self, code: int, name: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._cupti.cuptiGetResultString(ctypes.c_int(code), ctypes.byref(text))
        told = text.value.decode() if text.value else f"code {code}"
        raise DeviceError(f"CUPTI refused {name}: {told}. Another profiler may hold it; the rest is seen without it.")


def _of_the_device(records: Any) -> Any:
    """Without the calls that neither queued anything nor waited for it."""
    calls = np.isin(records["kind"], CALLS)
    return records[~calls | np.isin(records["correlation"], records["correlation"][~calls])]
