"""A probe measures memory and the disk, and reports what it cannot measure."""

import doctest
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from tests.support.probes import HOST, MACHINE

from forebay.core import ceilings, nvml
from forebay.core.hardware import Hardware
from forebay.measure.probe import disk, host, measure, timing
from forebay.sources.direct import page_cache


@pytest.mark.parametrize(("module", "examples"), [(ceilings, 2), (host, 1)])
def test_examples_in_docstrings_run(module, examples):
    assert doctest.testmod(module) == (0, examples)


def test_a_fast_measurement_is_the_median_of_nine_samples_after_a_warm_up():
    samples = iter([100.0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert timing.measure_median(lambda: next(samples), seconds=60) == 5
    assert list(samples) == []


def test_a_slow_measurement_takes_one_sample_after_a_warm_up():
    samples = iter([100.0, 7, 8])
    assert timing.measure_median(lambda: next(samples), seconds=0) == 7


@pytest.mark.parametrize("memory_nbytes", [0, 1 << 30, 1 << 40])
def test_buffers_stay_below_their_limit_and_start_at_pages(memory_nbytes):
    buffers = timing.Buffers.for_memory(memory_nbytes)
    assert buffers.source.nbytes + buffers.target.nbytes <= max(128 << 20, min(384 << 20, memory_nbytes // 4))
    assert buffers.source.ctypes.data % 4096 == buffers.target.ctypes.data % 4096 == 0
    assert sum(len(window) for window in buffers.windows()) == len(buffers.source)


def test_threads_double_up_to_the_cores():
    assert [host.thread_counts(cores) for cores in (1, 2, 3, 16)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize("cores", [1, 3])
def test_memory_is_measured_by_threads_and_by_rows(monkeypatch, cores):
    monkeypatch.setattr(timing, "MAX_SAMPLES", 1)
    found = host.measure_host(timing.Buffers.for_memory(0), cores)
    assert [copy.threads for copy in found.copies] == host.thread_counts(cores)
    assert [gather.threads for gather in found.gathers] == sorted({1, cores})
    assert [point.row_nbytes for point in found.gathers[-1].rows.points] == [64, 400, 4096, 65536, 150528]
    assert 1e5 < found.gather_bytes_per_second(4096) < 1e12


BUFFER = np.ones(8 << 20, np.uint8)


@pytest.fixture
def small_file(monkeypatch):
    monkeypatch.setattr(disk, "FILE_NBYTES", 16 << 20)


@pytest.mark.usefixtures("small_file")
def test_the_disk_is_read_and_no_file_is_left(tmp_path):
    found, _ = disk.measure_disk([tmp_path], BUFFER)
    assert found.page_cache_bytes_per_second > 1e4
    assert found.folder == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_file")
def test_a_page_cache_that_keeps_the_file_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 1.0)
    found, missing = disk.measure_disk([tmp_path], BUFFER)
    assert found.disk_bytes_per_second is None
    assert "stayed in the page cache" in missing[0]


@pytest.mark.usefixtures("small_file")
def test_a_folder_in_memory_is_avoided_or_reported(tmp_path, monkeypatch):
    memory, real = tmp_path / "memory", tmp_path / "real"
    memory.mkdir(), real.mkdir()
    monkeypatch.setattr(disk, "filesystem_of", lambda folder: {"memory": "tmpfs"}.get(folder.name, "ext4"))
    assert disk.measure_disk([memory, real], BUFFER)[0].folder == str(real)
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 1.0)
    assert "in memory. Set TMPDIR" in disk.measure_disk([memory], BUFFER)[1][0]


def test_the_filesystem_is_that_of_the_nearest_mount():
    assert disk.filesystem_of(Path("/proc/self")) == "proc"


def test_a_full_disk_is_reported(monkeypatch):
    monkeypatch.setattr(measure, "measure_disk", lambda *_: exec("raise OSError(28, 'No space left on device')"))
    assert measure._measure_disk(timing.Buffers(BUFFER, BUFFER)) == (
        None,
        ["disk: the test file could not be written or read: [Errno 28] No space left on device."],
    )


@pytest.mark.parametrize(
    ("visible", "installed", "names", "message"),
    [
        ("", True, ["H200"], "CUDA_VISIBLE_DEVICES hides all GPUs"),
        ("0", False, ["H200"], "measuring H200 needs cuda-bindings. Run pip install"),
        ("0", False, [], "none was found"),
        ("0", True, ["H200"], "import of forebay.measure.probe.cuda.measure halted"),
    ],
)
def test_the_reason_for_missing_gpu_ceilings_is_reported(monkeypatch, visible, installed, names, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(measure, "is_cuda_installed", lambda: installed)
    monkeypatch.setattr(nvml.Nvml, "gpu_names", names)
    monkeypatch.setitem(sys.modules, "forebay.measure.probe.cuda.measure", None)  # None makes the import fail
    found, missing = measure._measure_device(timing.Buffers(BUFFER, BUFFER), lambda line: None)
    assert found is None
    assert message in missing[0]


def test_a_probe_contains_ceilings_and_time(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "detect", classmethod(lambda cls: MACHINE))
    found = measure.MeasuredCeilings(HOST, None, None, ("GPU: none was found.",))
    monkeypatch.setattr(measure, "measure_ceilings", lambda hardware, report: found)
    probe = measure.measure_machine()
    assert (probe.hardware, probe.host, probe.missing) == (MACHINE, HOST, found.missing)
    assert abs((datetime.now(UTC) - probe.measured_at).total_seconds()) < 60
    assert list(tmp_path.iterdir()) == []  # a measurement saves no file
