"""A probe measures only on request, saves its results, and never trusts a damaged file."""

import copy
import doctest
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core import ceilings, hardware, json_values, nvml
from forebay.core.ceilings import (
    CopySpeed,
    DeviceCeilings,
    DiskCeilings,
    HostCeilings,
    HostGather,
    Probe,
    RowSpeed,
    RowSpeeds,
)
from forebay.core.hardware import Hardware
from forebay.measure.probe import disk, host, measure, timing

SPEEDS = RowSpeeds((RowSpeed(64, 1e9), RowSpeed(400, 4e9), RowSpeed(4096, 9e9)))
HOST = HostCeilings(
    copies=(CopySpeed(1, 8e9), CopySpeed(2, 12e9), CopySpeed(4, 20e9)),
    gathers=(HostGather(1, SPEEDS), HostGather(4, RowSpeeds((RowSpeed(64, 3e9), RowSpeed(4096, 21e9))))),
)
DEVICE = DeviceCeilings("GPU", 1, 2, 5, None, 5e10, 5e10, 9e10, 8e9, 1e10, 1e10, 5e-6, 1e-5, None, 7e-6, SPEEDS, None)
MACHINE = Hardware("CPU", 4, 8 << 30, ("GPU",), "580.1")
PROBE = Probe(
    MACHINE, datetime(2026, 7, 30, tzinfo=UTC), 9.5, HOST, DiskCeilings("/tmp", "ext4", None, 9e9), DEVICE, ()
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache folder, on a machine with fixed hardware."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "detect", classmethod(lambda cls: MACHINE))
    return tmp_path / "forebay"


def refuse(*_, **__):
    raise AssertionError("this must not be called")


# Ceilings


def test_speeds_of_measured_sizes_are_exact():
    assert [SPEEDS.bytes_per_second(size) for size in (64, 400, 4096)] == pytest.approx([1e9, 4e9, 9e9])


def test_smaller_rows_take_the_time_of_the_smallest_measured_row():
    assert SPEEDS.bytes_per_second(16) == pytest.approx(0.25e9)


def test_larger_rows_are_as_fast_as_the_largest_measured_row():
    assert SPEEDS.bytes_per_second(10**9) == 9e9


@given(st.integers(64, 4096))
def test_a_speed_lies_between_the_neighbouring_speeds(row_nbytes):
    slower, faster = (1e9, 4e9) if row_nbytes <= 400 else (4e9, 9e9)
    assert slower * 0.999 <= SPEEDS.bytes_per_second(row_nbytes) <= faster * 1.001


def test_speeds_of_threads_are_interpolated_and_then_constant():
    assert HOST.copy_bytes_per_second(threads=3) == pytest.approx(16e9)
    assert HOST.copy_bytes_per_second(threads=64) == 20e9
    assert HOST.gather_bytes_per_second(4096) == 9e9
    assert HOST.gather_bytes_per_second(4096, threads=2) == pytest.approx(13e9)


@pytest.mark.parametrize("sizes", [(), (0, 64), (64, 64), (400, 64)])
def test_speeds_out_of_order_are_refused(sizes):
    with pytest.raises(ValueError, match="ascending order"):
        RowSpeeds(tuple(RowSpeed(size, 1e9) for size in sizes))


@pytest.mark.parametrize(("module", "examples"), [(ceilings, 2), (host, 1)])
def test_examples_in_docstrings_run(module, examples):
    assert doctest.testmod(module) == (0, examples)


# The hardware


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": "another"},
        {"cores": 5},
        {"memory_nbytes": 16 << 30},
        {"gpus": ()},
        {"gpus": ("GPU", "GPU")},
        {"driver_version": "581"},
    ],
)
def test_another_machine_has_another_fingerprint(other):
    assert replace(MACHINE, **other).fingerprint != MACHINE.fingerprint


def test_a_few_pages_of_memory_do_not_change_the_fingerprint():
    assert replace(MACHINE, memory_nbytes=MACHINE.memory_nbytes - 40_000).fingerprint == MACHINE.fingerprint


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_not_part_of_the_machine(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: True)
    monkeypatch.setattr(hardware, "_gpu_names_and_driver", refuse)
    assert Hardware.detect().gpus == ()


def test_without_cuda_bindings_gpus_are_not_part_of_the_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "_gpu_names_and_driver", lambda: (("GPU",), "580"))
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: True)
    assert Hardware.detect().gpus == ("GPU",)
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: False)
    assert Hardware.detect().gpus == ()


def test_without_a_driver_no_gpu_is_found(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: exec("raise OSError(name)"))
    with nvml.Nvml() as library:
        assert (library.gpu_names, library.driver_version, library.pcie_link("0:0:0.0")) == ((), "", (None, None))


# The saved probe


def test_a_saved_probe_is_read_back_equal(folder):
    assert Probe.cached() is None
    assert PROBE.save() == folder / f"probe-{MACHINE.fingerprint}.json"
    assert Probe.cached() == PROBE


def test_a_saved_probe_is_plain_json_with_a_version_and_units(folder):
    document = json.loads(PROBE.save().read_text())
    assert document["schema_version"] == 1
    assert document["host"]["copies"][0] == {"threads": 1, "bytes_per_second": 8e9}
    assert document["measured_at"] == "2026-07-30T00:00:00+00:00"


def test_reading_the_cached_probe_measures_nothing(folder, monkeypatch):
    monkeypatch.setattr(measure, "measure_ceilings", refuse)
    PROBE.save()
    assert Probe.cached() == PROBE
    (folder / f"probe-{MACHINE.fingerprint}.json").unlink()
    assert Probe.cached() is None


def test_reading_the_cached_probe_imports_no_measuring_code():
    script = (
        "import sys, forebay.core.ceilings as p; p.Probe.cached(); print([n for n in sys.modules if 'forebay' in n])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "forebay.core.ceilings" in loaded
    assert "forebay.measure.probe.measure" not in loaded


def test_without_any_saved_probe_the_hardware_is_not_detected(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "detect", refuse)
    assert Probe.cached() is None


def test_a_probe_of_another_machine_is_not_used(folder, caplog):
    path = PROBE.save()
    path.write_text(json.dumps(replace(PROBE, hardware=replace(MACHINE, cores=64)).to_json()))
    assert Probe.cached() is None
    assert "another machine" in caplog.text


def paths_of(document, path=()):
    """Yield the path and the value of everything inside a JSON document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key), value
        if isinstance(value, dict | list):
            yield from paths_of(value, (*path, key))


PATHS = [pair for pair in paths_of(PROBE.to_json()) if pair[0] != ("schema_version",)]
NUMBERS = [place for place, value in PATHS if isinstance(value, int | float)]
REST = [place for place, value in PATHS if not isinstance(value, int | float)]
FIELDS = [place for place, _ in PATHS if isinstance(place[-1], str)]
WRONG = [-1.5, float("nan"), float("inf"), "", True, {}, [[]], 10**400]


def holder_of(document, place):
    for key in place[:-1]:
        document = document[key]
    return document


def read_and_write(document):
    """Read and write the document, or return None if reading raises ValueError."""
    try:
        return json_values.from_json(Probe, document).to_json()
    except ValueError:
        return None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(NUMBERS))
def test_a_wrong_number_anywhere_is_refused(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_write(document) is None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(REST))
def test_any_other_wrong_value_is_refused_or_preserved(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_write(document) in (None, document)


@given(place=st.sampled_from(FIELDS))
def test_a_missing_field_anywhere_is_refused(place):
    document = copy.deepcopy(PROBE.to_json())
    del holder_of(document, place)[place[-1]]
    assert read_and_write(document) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema_version": 2}', b"[" * 100_000])
def test_a_damaged_file_is_ignored_with_a_warning(folder, caplog, content):
    PROBE.save().write_bytes(content)
    assert Probe.cached() is None
    assert "forebay probe --fresh" in caplog.text


@given(share=st.floats(0, 0.99))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    text = json.dumps(PROBE.to_json())
    path = tmp_path_factory.mktemp("cut") / "probe.json"
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(ValueError, match=r"."):
        Probe._read(path, MACHINE)


def test_interrupted_saving_leaves_only_the_old_file(folder, monkeypatch):
    path = PROBE.save()
    monkeypatch.setattr(json_values.json, "dump", lambda *_, **__: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        replace(PROBE, seconds=1.0).save()
    assert list(folder.iterdir()) == [path]
    assert Probe.cached() == PROBE


def test_a_folder_without_write_access_raises_with_advice(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Probe.cached() is None
    with pytest.raises(OSError, match="Set XDG_CACHE_HOME"):
        PROBE.save()


def test_a_relative_cache_home_is_ignored_as_the_standard_requires(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/user")
    assert json_values.cache_folder() == Path("/home/user/.cache/forebay")


# Measuring


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
    monkeypatch.setattr(disk, "cached_share", lambda file: 1.0)
    found, missing = disk.measure_disk([tmp_path], BUFFER)
    assert found.disk_bytes_per_second is None
    assert "stayed in the page cache" in missing[0]


@pytest.mark.usefixtures("small_file")
def test_a_folder_in_memory_is_avoided_or_reported(tmp_path, monkeypatch):
    memory, real = tmp_path / "memory", tmp_path / "real"
    memory.mkdir(), real.mkdir()
    monkeypatch.setattr(disk, "filesystem_of", lambda folder: {"memory": "tmpfs"}.get(folder.name, "ext4"))
    assert disk.measure_disk([memory, real], BUFFER)[0].folder == str(real)
    monkeypatch.setattr(disk, "cached_share", lambda file: 1.0)
    assert "in memory. Set TMPDIR" in disk.measure_disk([memory], BUFFER)[1][0]


def test_the_filesystem_is_that_of_the_nearest_mount():
    assert disk.filesystem_of(Path("/proc/self")) == "proc"


def test_a_disk_without_write_access_is_reported(monkeypatch):
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
    monkeypatch.setitem(sys.modules, "forebay.measure.probe.cuda.measure", None)  # cannot be imported
    found, missing = measure._measure_device(timing.Buffers(BUFFER, BUFFER), lambda line: None)
    assert found is None
    assert message in missing[0]


def test_a_probe_contains_ceilings_and_time(monkeypatch, folder):
    found = measure.MeasuredCeilings(HOST, None, None, ("GPU: none was found.",))
    monkeypatch.setattr(measure, "measure_ceilings", lambda hardware, report: found)
    probe = measure.measure_machine()
    assert (probe.hardware, probe.host, probe.missing) == (MACHINE, HOST, found.missing)
    assert abs((datetime.now(UTC) - probe.measured_at).total_seconds()) < 60
    assert list(folder.parent.iterdir()) == []
