"""Device records of every CUPTI version are read correctly. A stand-in replaces CUPTI, so no GPU is needed."""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.support.paths import DOCTOR

from forebay.doctor.capture.device import cupti as cupti
from forebay.doctor.capture.device.cupti import CuptiRecorder, open_buffers
from forebay.doctor.model.device_records import CopyKind, DeviceRecords, MemoryKind, RecordKind
from forebay.errors import DeviceError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

STAND_IN = DOCTOR / "stand_in" / "cupti.c"
SIZES = {  # version -> bytes of its records of copies, memsets, kernels and synchronisations
    "12.1": (88, 88, 208, 40),
    "12.9": (96, 88, 208, 56),
    "13.0": (96, 88, 216, 56),
    "13.4": (112, 104, 248, 56),
}
NAME = ctypes.create_string_buffer(b"gemm_kernel")


def build_library(source, folder):
    built = folder / f"{source.stem}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source, "-lpthread"], check=True)
    return built


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Build separate copies of the libraries for this file, because the libraries have global state."""
    folder = tmp_path_factory.mktemp("libraries")
    buffers = build_library(Path(cupti.__file__).with_name("buffers.c"), folder)
    return ctypes.CDLL(str(build_library(STAND_IN, folder))), open_buffers(buffers)


@pytest.fixture(params=SIZES)
def sizes(request, libraries):
    copy, memset, kernel, wait = SIZES[request.param]
    kinds = {RecordKind.MEMCPY: copy, RecordKind.MEMSET: memset, RecordKind.CONCURRENT_KERNEL: kernel}
    kinds |= {RecordKind.SYNCHRONIZATION: wait, RecordKind.RUNTIME: 40}
    for kind, nbytes in kinds.items():
        libraries[0].stand_in_size(ctypes.c_uint32(kind), ctypes.c_size_t(nbytes))
    return kinds


def padded(record, nbytes):
    return record + bytes(nbytes - len(record))


def copy_record(sizes, *, start, end, nbytes, correlation):
    kinds = bytes([CopyKind.HOST_TO_DEVICE, MemoryKind.PAGEABLE, MemoryKind.DEVICE, 1])
    numbers = struct.pack("<QQQIIII", nbytes, start, end, 2, 1, 7, correlation)
    return padded(struct.pack("<I", RecordKind.MEMCPY) + kinds + numbers, sizes[RecordKind.MEMCPY])


def kernel_record(sizes, *, start, end, correlation):
    record = bytearray(sizes[RecordKind.CONCURRENT_KERNEL])
    struct.pack_into("<I", record, 0, RecordKind.CONCURRENT_KERNEL)
    struct.pack_into("<QQ", record, 16, start, end)
    struct.pack_into("<IIIIIIIII", record, 40, 2, 1, 7, 10, 11, 12, 128, 2, 1)
    struct.pack_into("<I", record, 92, correlation)
    struct.pack_into("<Q", record, 104, ctypes.addressof(NAME))
    return bytes(record)


def call_record(*, start, end, number, correlation):
    return struct.pack("<IIQQIIII", RecordKind.RUNTIME, number, start, end, 1, 99, correlation, 0)


def wait_record(sizes, *, start, end):
    record = struct.pack("<IIQQIII", RecordKind.SYNCHRONIZATION, 3, start, end, 5, 1, 7)
    return padded(record, sizes[RecordKind.SYNCHRONIZATION])


def read(libraries, records):
    cupti, buffers = libraries
    kept = ctypes.create_string_buffer(records, len(records))
    cupti.stand_in_records(kept, ctypes.c_size_t(len(records)))
    activity = CuptiRecorder(cupti, buffers)
    activity.start()
    return activity.stop()


def test_every_kind_of_record_is_read_from_every_version(libraries, sizes):
    seen = read(
        libraries,
        copy_record(sizes, start=100, end=200, nbytes=4096, correlation=1)
        + kernel_record(sizes, start=300, end=350, correlation=2)
        + call_record(start=90, end=95, number=41, correlation=1)
        + wait_record(sizes, start=400, end=500),
    )
    call, copy, kernel, wait = seen.records
    assert (copy["nbytes"], copy["what"], copy["source"], copy["flags"]) == (4096, CopyKind.HOST_TO_DEVICE, 1, 1)
    assert (copy["device"], copy["stream"], copy["correlation"]) == (2, 7, 1)
    assert (call["what"], call["thread"], call["correlation"]) == (41, 99, 1)
    assert kernel["grid"].tolist() == [10, 11, 12]
    assert kernel["block"].tolist() == [128, 2, 1]
    assert seen.names[kernel["name"]] == "gemm_kernel"
    assert (wait["what"], wait["stream"], wait["correlation"]) == (3, 7, 5)


def test_calls_that_neither_queue_work_nor_wait_are_removed(libraries, sizes):
    kernel = kernel_record(sizes, start=300, end=350, correlation=2)
    launch = call_record(start=90, end=95, number=211, correlation=2)
    seen = read(libraries, kernel + launch + call_record(start=96, end=97, number=17, correlation=3))
    assert seen.records["correlation"].tolist() == [2, 2]


def test_calls_that_allocate_memory_are_kept(libraries, sizes):
    kernel = kernel_record(sizes, start=300, end=350, correlation=2)
    calls = [call_record(start=90, end=95, number=number, correlation=number) for number in (20, 21, 22)]
    seen = read(libraries, kernel + b"".join(calls))
    assert sorted(seen.records["correlation"].tolist()) == [2, 20, 22]  # the recorder removes 21, cudaMallocPitch


def test_records_of_frequent_calls_are_disabled_and_cupti_is_detached(libraries, sizes):
    cupti = libraries[0]
    silenced, detached = cupti.stand_in_silenced(), cupti.stand_in_detached()
    read(libraries, kernel_record(sizes, start=0, end=1000, correlation=1))
    assert cupti.stand_in_silenced() > silenced
    assert cupti.stand_in_detached() == detached + 1


def test_records_are_sorted_by_start(libraries, sizes):
    starts = [500, 100, 300]
    seen = read(libraries, b"".join(kernel_record(sizes, start=at, end=at + 1, correlation=at) for at in starts))
    assert seen.records["correlation"].tolist() == [100, 300, 500]


def test_a_record_with_converted_times_does_not_end_before_it_starts(libraries, sizes):
    seen = read(libraries, kernel_record(sizes, start=0, end=1000, correlation=1))
    record = seen.records[0]
    assert record["end"] >= record["start"]


def test_unfinished_work_is_removed(libraries, sizes):
    unfinished = kernel_record(sizes, start=0, end=0, correlation=1)
    seen = read(libraries, unfinished + kernel_record(sizes, start=10, end=20, correlation=2))
    assert seen.records["correlation"].tolist() == [2]


def test_all_records_of_many_buffers_are_read(libraries, sizes):
    count = 100_000
    seen = read(libraries, kernel_record(sizes, start=1, end=2, correlation=3) * count)
    assert len(seen.records) == count
    assert np.all(seen.records["correlation"] == 3)


def test_dropped_records_are_counted(libraries, sizes):
    buffers = libraries[1]
    buffers.forebay_limit(ctypes.c_size_t(4 << 20))
    try:
        seen = read(libraries, kernel_record(sizes, start=1, end=2, correlation=3) * 100_000)
        assert 0 < len(seen.records) < 100_000
        assert seen.dropped > 0
        assert buffers.forebay_refused() > 0
    finally:
        buffers.forebay_limit(ctypes.c_size_t(256 << 20))


def test_the_error_mentions_another_profiler(libraries, sizes):
    cupti, buffers = libraries
    cupti.stand_in_refuse(39)
    try:
        with pytest.raises(DeviceError, match=r"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS.*Another profiler"):
            CuptiRecorder(cupti, buffers).start()
    finally:
        cupti.stand_in_refuse(0)


def test_the_error_mentions_a_missing_compiler(tmp_path):
    with pytest.raises(DeviceError, match="without a C compiler"):
        open_buffers(tmp_path / "buffers.so")


def test_records_are_equal_after_a_conversion_to_json_and_back(libraries, sizes):
    seen = read(libraries, kernel_record(sizes, start=1, end=2, correlation=3) * 10)
    again = DeviceRecords.from_json(seen.to_json())
    assert np.array_equal(again.records, seen.records)
    assert (again.names, again.dropped, again.version) == (seen.names, seen.dropped, seen.version)
