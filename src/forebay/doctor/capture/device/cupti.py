"""Records the activity of NVIDIA GPUs through CUPTI, the profiling library of CUDA.

CUPTI fills buffers of a small C library (buffers.c). Python reads the records only when recording stops.
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from forebay.doctor.model.device_records import (
    CALL_KINDS,
    RECORD,
    DeviceRecords,
    RecordKind,
    mask_memory_calls,
    mask_working_calls,
    sort_by_start,
)
from forebay.errors import DeviceError

__all__ = ["CuptiRecorder", "open_buffers", "open_cupti"]

BUFFERS_FILE = Path(__file__).with_name("buffers.so")  # built with the wheel
CUPTI_NAME = "libcupti.so"
ACTIVITY_KINDS = (RecordKind.MEMCPY, RecordKind.MEMSET, RecordKind.CONCURRENT_KERNEL, RecordKind.SYNCHRONIZATION)
# CUPTI function that disables records of a call -> ids of frequent calls that queue no work. The calls of the runtime
# are cudaGetLastError, cudaSetDevice, cudaGetDevice and cudaStreamIsCapturing. Those of the driver are cuCtxSetCurrent,
# cuDevicePrimaryCtxGetState and cuKernelGetName. The ids are in cupti_runtime_cbid.h and cupti_driver_cbid.h.
IGNORED_CALLS = {"cuptiActivityEnableRuntimeApi": (10, 16, 17, 317), "cuptiActivityEnableDriverApi": (303, 392, 719)}
_INSTALL_CUPTI = "Run `pip install nvidia-cuda-cupti` for CUDA 13, or `pip install nvidia-cuda-cupti-cu12` for CUDA 12."
_FLUSH_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also return buffers that are not full
_MIN_RECORD_NBYTES = 32  # no CUPTI record of ACTIVITY_KINDS or CALL_KINDS is smaller


class CuptiRecorder:
    """Records a device from `start` to `stop`. Only one recorder can run at a time."""

    def __init__(self, cupti: Any = None, buffers: Any = None) -> None:
        self._cupti = cupti or open_cupti()
        self._buffers = buffers or open_buffers()
        if self._buffers.forebay_record_nbytes() != RECORD.itemsize:
            raise DeviceError("buffers.so of Forebay's doctor is from another version. Reinstall Forebay.")
        self._clocks: list[tuple[int, int]] = []  # nanoseconds: CUPTI time and ledger time, at start and stop

    def start(self) -> None:
        """Start recording.

        CUPTI records no work that was queued before, and the device has finished this work when it starts the first
        recorded operation: in 126 of 128 captures of an H200, this operation starts within 0.3 ms of its call. So
        `start` does not wait for the device. The step in which it runs is not a recorded step.
        """
        self._call("cuptiActivityRegisterCallbacks", self._buffers.forebay_buffer_requested,
                   self._buffers.forebay_buffer_completed)  # fmt: skip
        for kind in (*ACTIVITY_KINDS, *CALL_KINDS):
            self._call("cuptiActivityEnable", ctypes.c_int(kind))
        self._ignore_frequent_calls()
        self._clocks = [self._read_clocks()]

    def stop(self) -> DeviceRecords:
        """Stop recording, detach CUPTI from the process and return the records since `start`."""
        self._clocks.append(self._read_clocks())
        for kind in (*ACTIVITY_KINDS, *CALL_KINDS):
            self._cupti.cuptiActivityDisable(ctypes.c_int(kind))
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FLUSH_FORCED))
        records = self._read_records()
        records = _remove_calls_without_work(records[records["end"] > 0])  # unfinished work has no times
        names = self._replace_name_pointers(records)
        self._convert_times(records)
        recorded = DeviceRecords(sort_by_start(records), names, self._count_dropped(), self._cupti_version())
        # An attached CUPTI makes a kernel launch a third slower, even if CUPTI records nothing.
        self._call("cuptiFinalize")
        return recorded

    def _ignore_frequent_calls(self) -> None:
        """Disable the records of IGNORED_CALLS, if this version of CUPTI can.

        Otherwise `stop` removes these records.
        """
        for name, numbers in IGNORED_CALLS.items():
            enable = getattr(self._cupti, name, None)
            if enable is None:
                continue
            for number in numbers:
                enable(ctypes.c_uint32(number), ctypes.c_uint8(0))

    def _read_records(self) -> Any:
        """Return the records of all buffers as one array, and free the buffers."""
        capacity = self._buffers.forebay_buffer_nbytes() // _MIN_RECORD_NBYTES
        chunks, chunk = [np.empty(0, RECORD)], np.empty(capacity, RECORD)
        read, next_record = self._buffers.forebay_read, self._cupti.cuptiActivityGetNextRecord
        read.restype = ctypes.c_long
        while (count := read(next_record, ctypes.c_void_p(chunk.ctypes.data), ctypes.c_size_t(capacity))) >= 0:
            chunks.append(chunk[:count].copy())
        return np.concatenate(chunks)

    def _replace_name_pointers(self, records: Any) -> tuple[str, ...]:
        """Return the kernel names, and replace each name pointer by an index into them.

        The pointers are valid only while CUPTI is attached.
        """
        pointers, indices = np.unique(records["name"], return_inverse=True)
        records["name"] = indices
        return tuple(ctypes.string_at(int(pointer)).decode(errors="replace") if pointer else "" for pointer in pointers)

    def _convert_times(self, records: Any) -> None:
        """Convert the times of CUPTI to the clock of the ledger.

        This interpolates between the readings of both clocks at start and stop.
        """
        (cupti_start, ledger_start), (cupti_end, ledger_end) = self._clocks
        rate = (ledger_end - ledger_start) / max(1, cupti_end - cupti_start)
        for name in ("start", "end"):
            elapsed = records[name].astype(np.int64) - cupti_start
            records[name] = (ledger_start + elapsed * rate).astype(np.uint64)

    def _read_clocks(self) -> tuple[int, int]:
        """Return the CUPTI time and the ledger time in nanoseconds."""
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value, perf_counter_ns()

    def _count_dropped(self) -> int:
        count = ctypes.c_size_t()
        self._cupti.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(count))
        return int(count.value)

    def _cupti_version(self) -> int:
        version = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(version))
        return int(version.value)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of CUPTI; raise DeviceError if it fails."""
        code = getattr(self._cupti, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._cupti.cuptiGetResultString(ctypes.c_int(code), ctypes.byref(text))
        reason = text.value.decode() if text.value else f"code {code}"
        raise DeviceError(f"CUPTI refused {name}: {reason}. Another profiler may use CUPTI. Stop it and run again.")


def _remove_calls_without_work(records: Any) -> Any:
    """Return the records without CUDA calls that had no effect on the device.

    Calls with an effect queued work, waited for work, or allocated or freed memory.
    """
    is_call = np.isin(records["kind"], CALL_KINDS)  # XLA calls the driver, most frameworks the runtime
    return records[~is_call | mask_working_calls(records) | mask_memory_calls(records)]


def open_buffers(path: Path = BUFFERS_FILE) -> Any:
    """Return the C library whose buffers CUPTI fills; raise DeviceError if it is missing."""
    if not path.is_file():
        raise DeviceError(
            f"{path.name} is missing, because Forebay was installed from its pure wheel or without a C compiler. "
            "Install the wheel for Linux, or install a C compiler (`cc`) and reinstall Forebay."
        )
    return ctypes.CDLL(str(path))


def open_cupti() -> Any:
    """Return the CUPTI library; raise DeviceError if it is missing."""
    failures = []
    for candidate in _library_candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(f"{candidate}: {error}")
    raise DeviceError(f"CUPTI was not found ({'; '.join(failures)}). {_INSTALL_CUPTI}")


def _library_candidates() -> Iterator[str]:
    """Yield paths or names of CUPTI, the most suitable first.

    A CUPTI that the process has loaded comes first, because a second copy records nothing. Otherwise version 12 comes
    first if the process has loaded version 12 of the CUDA runtime, else version 13.
    """
    maps = Path("/proc/self/maps")
    loaded = maps.read_text() if maps.is_file() else ""
    yield from dict.fromkeys(re.findall(rf"(/\S*{re.escape(CUPTI_NAME)}\S*)", loaded))
    majors = ["12", "13"] if "libcudart.so.12" in loaded else ["13", "12"]
    folders = [Path(folder) / "nvidia" for folder in sys.path if (Path(folder) / "nvidia").is_dir()]
    for major in majors:
        for folder in folders:
            for subfolder in ("cuda_cupti/lib", f"cu{major}/lib"):
                path = folder / subfolder / f"{CUPTI_NAME}.{major}"
                if path.is_file():
                    yield str(path)
        yield f"{CUPTI_NAME}.{major}"
    yield "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"
