"""A probe measures only when asked, keeps what it found, and never trusts a damaged file."""

import copy
import doctest
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core import ceilings, hardware, json_values, nvml
from forebay.core.ceilings import (
    CopySpeed,
    DeviceFigures,
    DiskFigures,
    HostFigures,
    HostGather,
    Probe,
    RowSpeed,
    RowSpeeds,
)
from forebay.core.hardware import Hardware
from forebay.measure.probe import disk, host, measure, timing

SPEEDS = RowSpeeds((RowSpeed(64, 1e9), RowSpeed(400, 4e9), RowSpeed(4096, 9e9)))
HOST = HostFigures(
    copies=(CopySpeed(1, 8e9), CopySpeed(2, 12e9), CopySpeed(4, 20e9)),
    gathers=(HostGather(1, SPEEDS), HostGather(4, RowSpeeds((RowSpeed(64, 3e9), RowSpeed(4096, 21e9))))),
)
DEVICE = DeviceFigures("GPU", 1, 2, 5, None, 5e10, 5e10, 9e10, 8e9, 1e10, 1e10, 5e-6, 1e-5, None, 7e-6, SPEEDS, None)
MACHINE = Hardware("CPU", 4, 8 << 30, ("GPU",), "580.1")
PROBE = Probe(MACHINE, datetime(2026, 7, 30, tzinfo=UTC), 9.5, HOST, DiskFigures("/tmp", "ext4", None, 9e9), DEVICE, ())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache folder of a machine that is always the same."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "here", classmethod(lambda cls: MACHINE))
    return tmp_path / "forebay"


def refuse(*_, **__):
    raise AssertionError("this must not be asked for")


# Figures


def test_measured_speeds_are_given_as_they_were_measured():
    assert [SPEEDS.bytes_per_second(size) for size in (64, 400, 4096)] == pytest.approx([1e9, 4e9, 9e9])


def test_smaller_rows_take_as_long_as_the_smallest_measured():
    assert SPEEDS.bytes_per_second(16) == pytest.approx(0.25e9)


def test_larger_rows_are_as_fast_as_the_largest_measured():
    assert SPEEDS.bytes_per_second(10**9) == 9e9


@given(st.integers(64, 4096))
def test_speed_lies_between_those_of_the_neighbours(row_nbytes):
    slower, faster = (1e9, 4e9) if row_nbytes <= 400 else (4e9, 9e9)
    assert slower * 0.999 <= SPEEDS.bytes_per_second(row_nbytes) <= faster * 1.001


def test_threads_share_their_speed_and_more_than_measured_bring_nothing():
    assert HOST.copy_bytes_per_second(threads=3) == pytest.approx(16e9)
    assert HOST.copy_bytes_per_second(threads=64) == 20e9
    assert HOST.gather_bytes_per_second(4096) == 9e9
    assert HOST.gather_bytes_per_second(4096, threads=2) == pytest.approx(13e9)


@pytest.mark.parametrize("sizes", [(), (0, 64), (64, 64), (400, 64)])
def test_speeds_out_of_order_are_refused(sizes):
    with pytest.raises(ValueError, match="rising row_nbytes"):
        RowSpeeds(tuple(RowSpeed(size, 1e9) for size in sizes))


@pytest.mark.parametrize(("module", "examples"), [(ceilings, 2), (host, 1)])
def test_examples_in_docstrings_run(module, examples):
    assert doctest.testmod(module) == (0, examples)


# Which machine


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


def test_a_few_pages_more_or_less_are_the_same_machine():
    assert replace(MACHINE, memory_nbytes=MACHINE.memory_nbytes - 40_000).fingerprint == MACHINE.fingerprint


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_not_part_of_the_machine(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(hardware, "cuda_installed", lambda: True)
    monkeypatch.setattr(hardware, "_driver", refuse)
    assert Hardware.here().gpus == ()


def test_gpus_that_cuda_cannot_be_called_for_are_not_part_of_the_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "_driver", lambda: (("GPU",), "580"))
    monkeypatch.setattr(hardware, "cuda_installed", lambda: True)
    assert Hardware.here().gpus == ("GPU",)
    monkeypatch.setattr(hardware, "cuda_installed", lambda: False)
    assert Hardware.here().gpus == ()


def test_without_a_driver_nothing_is_known_of_gpus(monkeypatch):
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: exec("raise OSError(name)"))
    with nvml.Nvml() as library:
        assert (library.names, library.driver_version, library.link("0:0:0.0")) == ((), "", (None, None))


# What is kept


def test_what_is_saved_comes_back_equal(folder):
    assert Probe.cached() is None
    assert PROBE.save() == folder / f"probe-{MACHINE.fingerprint}.json"
    assert Probe.cached() == PROBE


def test_a_saved_probe_is_plain_json_with_a_version_and_units(folder):
    document = json.loads(PROBE.save().read_text())
    assert document["schema_version"] == 1
    assert document["host"]["copies"][0] == {"threads": 1, "bytes_per_second": 8e9}
    assert document["measured_at"] == "2026-07-30T00:00:00+00:00"


def test_asking_for_what_is_cached_measures_nothing(folder, monkeypatch):
    monkeypatch.setattr(measure, "measure_here", refuse)
    PROBE.save()
    assert Probe.cached() == PROBE
    (folder / f"probe-{MACHINE.fingerprint}.json").unlink()
    assert Probe.cached() is None


def test_asking_for_what_is_cached_loads_nothing_that_measures():
    script = (
        "import sys, forebay.core.ceilings as p; p.Probe.cached(); print([n for n in sys.modules if 'forebay' in n])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "forebay.core.ceilings" in loaded
    assert "forebay.measure.probe.measure" not in loaded


def test_where_nobody_ever_measured_the_machine_is_not_even_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "here", refuse)
    assert Probe.cached() is None


def test_what_was_measured_on_another_machine_is_not_used(folder, caplog):
    path = PROBE.save()
    path.write_text(json.dumps(replace(PROBE, hardware=replace(MACHINE, cores=64)).to_json()))
    assert Probe.cached() is None
    assert "another machine" in caplog.text


def places(document, path=()):
    """The way to everything inside a JSON document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key), value
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


FOUND = [found for found in places(PROBE.to_json()) if found[0] != ("schema_version",)]
NUMBERS = [place for place, value in FOUND if isinstance(value, int | float)]
REST = [place for place, value in FOUND if not isinstance(value, int | float)]
FIELDS = [place for place, _ in FOUND if isinstance(place[-1], str)]
WRONG = [-1.5, float("nan"), float("inf"), "", True, {}, [[]], 10**400]


def holder_of(document, place):
    for key in place[:-1]:
        document = document[key]
    return document


def read_and_written(document):
    """What a probe makes of it, or None; ValueError is the only way to fail."""
    try:
        return json_values.from_json(Probe, document).to_json()
    except ValueError:
        return None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(NUMBERS))
def test_a_wrong_number_anywhere_is_found_out(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_written(document) is None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(REST))
def test_anything_else_that_is_wrong_is_found_out_or_stays_as_it_is(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_written(document) in (None, document)


@given(place=st.sampled_from(FIELDS))
def test_a_field_that_is_missing_anywhere_is_found_out(place):
    document = copy.deepcopy(PROBE.to_json())
    del holder_of(document, place)[place[-1]]
    assert read_and_written(document) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema_version": 2}', b"[" * 100_000])
def test_a_damaged_file_counts_as_none_and_is_told(folder, caplog, content):
    PROBE.save().write_bytes(content)
    assert Probe.cached() is None
    assert "forebay probe --fresh" in caplog.text


@given(share=st.floats(0, 0.99))
def test_a_file_cut_short_anywhere_counts_as_none(tmp_path_factory, share):
    text = json.dumps(PROBE.to_json())
    path = tmp_path_factory.mktemp("cut") / "probe.json"
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(ValueError, match=r"."):
        Probe._read(path, MACHINE)


def test_saving_that_is_interrupted_leaves_the_old_file_and_nothing_else(folder, monkeypatch):
    path = PROBE.save()
    monkeypatch.setattr(json_values.json, "dump", lambda *_, **__: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        replace(PROBE, seconds=1.0).save()
    assert list(folder.iterdir()) == [path]
    assert Probe.cached() == PROBE


def test_a_folder_that_cannot_be_written_is_told_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Probe.cached() is None
    with pytest.raises(OSError, match="Set XDG_CACHE_HOME"):
        PROBE.save()


def test_a_relative_cache_home_is_ignored_as_the_standard_asks(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert json_values.cache_folder() == Path("/home/somebody/.cache/forebay")


# Measuring


def test_a_quick_figure_is_the_median_of_nine_after_a_warm_up():
    samples = iter([100.0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert timing.median(lambda: next(samples), seconds=60) == 5
    assert list(samples) == []


def test_a_slow_figure_is_taken_once_after_a_warm_up():
    samples = iter([100.0, 7, 8])
    assert timing.median(lambda: next(samples), seconds=0) == 7


@pytest.mark.parametrize("memory_nbytes", [0, 1 << 30, 1 << 40])
def test_buffers_keep_to_their_bound_and_to_whole_pages(memory_nbytes):
    buffers = timing.Buffers.of(memory_nbytes)
    assert buffers.source.nbytes + buffers.target.nbytes <= max(128 << 20, min(384 << 20, memory_nbytes // 4))
    assert buffers.source.ctypes.data % 4096 == buffers.target.ctypes.data % 4096 == 0
    assert sum(len(window) for window in buffers.windows()) == len(buffers.source)


def test_threads_double_up_to_the_cores():
    assert [host.thread_counts(cores) for cores in (1, 2, 3, 16)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize("cores", [1, 3])
def test_memory_is_measured_by_threads_and_by_rows(monkeypatch, cores):
    monkeypatch.setattr(timing, "REPEATS", 1)
    found = host.measure_host(timing.Buffers.of(0), cores)
    assert [copy.threads for copy in found.copies] == host.thread_counts(cores)
    assert [gather.threads for gather in found.gathers] == sorted({1, cores})
    assert [point.row_nbytes for point in found.gathers[-1].rows.points] == [64, 400, 4096, 65536, 150528]
    assert 1e5 < found.gather_bytes_per_second(4096) < 1e12


BUFFER = np.ones(8 << 20, np.uint8)


@pytest.fixture
def small_file(monkeypatch):
    monkeypatch.setattr(disk, "FILE_NBYTES", 16 << 20)


@pytest.mark.usefixtures("small_file")
def test_the_disk_is_read_and_nothing_is_left_there(tmp_path):
    found, _ = disk.measure_disk([tmp_path], BUFFER)
    assert found.page_cache_bytes_per_second > 1e4
    assert found.folder == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_file")
def test_a_page_cache_that_cannot_be_emptied_is_told_instead_of_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "cached_share", lambda file: 1.0)
    found, missing = disk.measure_disk([tmp_path], BUFFER)
    assert found.disk_bytes_per_second is None
    assert "could not be emptied" in missing[0]


@pytest.mark.usefixtures("small_file")
def test_a_folder_in_memory_is_passed_over_or_told(tmp_path, monkeypatch):
    memory, real = tmp_path / "memory", tmp_path / "real"
    memory.mkdir(), real.mkdir()
    monkeypatch.setattr(disk, "filesystem_of", lambda folder: {"memory": "tmpfs"}.get(folder.name, "ext4"))
    assert disk.measure_disk([memory, real], BUFFER)[0].folder == str(real)
    monkeypatch.setattr(disk, "cached_share", lambda file: 1.0)
    assert "in memory. Set TMPDIR" in disk.measure_disk([memory], BUFFER)[1][0]


def test_the_kind_of_a_filesystem_is_that_of_the_nearest_mount():
    assert disk.filesystem_of(Path("/proc/self")) == "proc"


def test_a_disk_that_cannot_be_written_is_told(monkeypatch):
    monkeypatch.setattr(measure, "measure_disk", lambda *_: exec("raise OSError(28, 'No space left on device')"))
    assert measure._disk(timing.Buffers(BUFFER, BUFFER)) == (
        None,
        ["disk: no file could be written: [Errno 28] No space left on device."],
    )


@pytest.mark.parametrize(
    ("visible", "installed", "names", "told"),
    [
        ("", True, ["H200"], "CUDA_VISIBLE_DEVICES hides it"),
        ("0", False, ["H200"], "H200 can be measured only with cuda-bindings: pip install"),
        ("0", False, [], "none was found"),
        ("0", True, ["H200"], "import of forebay.measure.probe.cuda.measure halted"),
    ],
)
def test_why_there_are_no_gpu_figures_is_told(monkeypatch, visible, installed, names, told):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(measure, "cuda_installed", lambda: installed)
    monkeypatch.setattr(nvml.Nvml, "names", names)
    monkeypatch.setitem(sys.modules, "forebay.measure.probe.cuda.measure", None)  # cannot be imported
    found, missing = measure._device(timing.Buffers(BUFFER, BUFFER), lambda line: None)
    assert found is None
    assert told in missing[0]


def test_a_probe_holds_what_was_measured_and_when(monkeypatch, folder):
    found = measure.Figures(HOST, None, None, ("GPU: none was found.",))
    monkeypatch.setattr(measure, "measure_here", lambda machine, say: found)
    probe = measure.measure_machine()
    assert (probe.hardware, probe.host, probe.missing) == (MACHINE, HOST, found.missing)
    assert abs((datetime.now(UTC) - probe.measured_at).total_seconds()) < 60
    assert list(folder.parent.iterdir()) == []
