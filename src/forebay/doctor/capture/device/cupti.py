"""Records device activity through CUPTI.

CUPTI fills buffers of a small C library (buffers.c). No Python code runs for a record while the script runs.
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from forebay.doctor.model.device_records import RECORD, DeviceRecords, RecordKind, sort_by_start
from forebay.errors import DeviceError

__all__ = ["CuptiRecorder", "open_buffers", "open_cupti"]

BUFFERS = Path(__file__).with_name("buffers.so")  # built with the wheel
LIBRARY = "libcupti.so"
ACTIVITY_KINDS = (RecordKind.MEMCPY, RecordKind.MEMSET, RecordKind.CONCURRENT_KERNEL, RecordKind.SYNCHRONIZATION)
CALL_KINDS = (RecordKind.RUNTIME, RecordKind.DRIVER)  # XLA calls the driver, most frameworks the runtime
# Frequent calls that queue no work, by their fixed CUPTI numbers: get the last error, get the device, query the capture
# state of a stream, get the name of a kernel.
IGNORED_CALLS = {"cuptiActivityEnableRuntimeApi": (10, 16, 17, 317), "cuptiActivityEnableDriverApi": (303, 392, 719)}
_FLUSH_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also return buffers that are not full
_MIN_RECORD_NBYTES = 32  # no record of the kinds above is smaller


class CuptiRecorder:
    """Records between `start` and `stop`; one recorder in a process at a time."""

    def __init__(self, cupti: Any = None, buffers: Any = None) -> None:
        self._cupti = cupti or open_cupti()
        self._buffers = buffers or open_buffers()
        if self._buffers.forebay_record_nbytes() != RECORD.itemsize:
            raise DeviceError("buffers.so of Forebay's doctor is from another version. Reinstall Forebay.")
        self._clocks: list[tuple[int, int]] = []  # CUPTI time and ledger time, at the start and at the end

    def start(self) -> None:
        """Start recording."""
        self._call("cuptiActivityRegisterCallbacks", self._buffers.forebay_buffer_requested,
                   self._buffers.forebay_buffer_completed)  # fmt: skip
        for kind in (*ACTIVITY_KINDS, *CALL_KINDS):
            self._call("cuptiActivityEnable", ctypes.c_int(kind))
        self._ignore_frequent_calls()
        self._clocks = [self._read_clocks()]

    def stop(self) -> DeviceRecords:
        """Stop recording, detach CUPTI from the process and return everything since `start`."""
        self._clocks.append(self._read_clocks())
        for kind in (*ACTIVITY_KINDS, *CALL_KINDS):
            self._cupti.cuptiActivityDisable(ctypes.c_int(kind))
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FLUSH_FORCED))
        records = self._read()
        records = _without_idle_calls(records[records["end"] > 0])  # unfinished work has no times
        names = self._number_names(records)
        self._convert_times(records)
        recorded = DeviceRecords(sort_by_start(records), names, self._dropped(), self._version())
        # A launch costs a third more while CUPTI is attached, even if it records nothing.
        self._call("cuptiFinalize")
        return recorded

    def _ignore_frequent_calls(self) -> None:
        """Switch off the records of IGNORED_CALLS. Older CUPTI cannot; `stop` then removes them."""
        for name, numbers in IGNORED_CALLS.items():
            enable = getattr(self._cupti, name, None)
            if enable is None:
                continue
            for number in numbers:
                enable(ctypes.c_uint32(number), ctypes.c_uint8(0))

    def _read(self) -> Any:
        room = self._buffers.forebay_buffer_nbytes() // _MIN_RECORD_NBYTES
        parts, chunk = [np.empty(0, RECORD)], np.empty(room, RECORD)
        read, next_record = self._buffers.forebay_read, self._cupti.cuptiActivityGetNextRecord
        read.restype = ctypes.c_long
        while (count := read(next_record, ctypes.c_void_p(chunk.ctypes.data), ctypes.c_size_t(room))) >= 0:
            parts.append(chunk[:count].copy())
        return np.concatenate(parts)

    def _number_names(self, records: Any) -> tuple[str, ...]:
        """Read the kernel names while their memory is valid, and replace each pointer by an index."""
        pointers, indices = np.unique(records["name"], return_inverse=True)
        records["name"] = indices
        return tuple(ctypes.string_at(int(pointer)).decode(errors="replace") if pointer else "" for pointer in pointers)

    def _convert_times(self, records: Any) -> None:
        """Convert CUPTI times to the clock of the API ledger, by the readings at the start and at the end."""
        (device_first, own_first), (device_last, own_last) = self._clocks
        rate = (own_last - own_first) / max(1, device_last - device_first)
        for name in ("start", "end"):
            passed = records[name].astype(np.int64) - device_first
            records[name] = (own_first + passed * rate).astype(np.uint64)

    def _read_clocks(self) -> tuple[int, int]:
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
        code = getattr(self._cupti, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._cupti.cuptiGetResultString(ctypes.c_int(code), ctypes.byref(text))
        reason = text.value.decode() if text.value else f"code {code}"
        raise DeviceError(f"CUPTI refused {name}: {reason}. Another profiler may use CUPTI. Stop it and run again.")


def _without_idle_calls(records: Any) -> Any:
    """Remove API calls that neither queued work nor waited for it."""
    calls = np.isin(records["kind"], CALL_KINDS)
    return records[~calls | np.isin(records["correlation"], records["correlation"][~calls])]


def open_buffers(path: Path = BUFFERS) -> Any:
    """Load the C library whose buffers CUPTI fills."""
    if not path.is_file():
        raise DeviceError(
            f"{path.name} is missing, because Forebay was installed without a C compiler. Install a wheel of Forebay, "
            "or install a C compiler (`cc`) and reinstall Forebay."
        )
    return ctypes.CDLL(str(path))


def open_cupti() -> Any:
    """Load CUPTI."""
    tried = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"{candidate}: {error}")
    raise DeviceError(f"CUPTI was not found ({'; '.join(tried)}). Run `pip install nvidia-cuda-cupti` (or -cu12).")


def _candidates() -> Iterator[str]:
    """Yield a loaded CUPTI first, because a second one records nothing; then that of the loaded CUDA runtime."""
    maps = Path("/proc/self/maps")
    loaded = maps.read_text() if maps.is_file() else ""
    yield from dict.fromkeys(re.findall(rf"(/\S*{re.escape(LIBRARY)}\S*)", loaded))
    majors = ["12", "13"] if "libcudart.so.12" in loaded else ["13", "12"]
    folders = [Path(folder) / "nvidia" for folder in sys.path if (Path(folder) / "nvidia").is_dir()]
    for major in majors:
        for folder in folders:
            for subfolder in ("cuda_cupti/lib", f"cu{major}/lib"):
                path = folder / subfolder / f"{LIBRARY}.{major}"
                if path.is_file():
                    yield str(path)
        yield f"{LIBRARY}.{major}"
    yield "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"
