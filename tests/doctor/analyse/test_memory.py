"""Memory usage: copies of the same data, constants of graphs, memory levels and memory readings."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from tests.doctor.captures import TENSORFLOW, GiB, MiB, compile_, keys_in_turn, loop, same, upload

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.memory import MemoryLevel, memory_usage
from forebay.doctor.capture.memory_samples import read_memory
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import EventKind
from forebay.doctor.report import side_notes

ON_GPU = {"device": "cuda:0", "pinned": False}


def data_copies_of(*happenings):
    (data,) = memory_usage(CaptureView(loop(*happenings))).data_copies
    return data


def reading(steps, used, *, host=2 * GiB, mapped=0, peak=3 * GiB, **more):
    fields = {"framework": "torch", "device": "cuda:0", "used_nbytes": used, "reserved_nbytes": 8 * GiB}
    device = fields | {"peak_nbytes": used + GiB, "total_nbytes": 40 * GiB} | more
    return {
        "when": "",
        "steps": steps,
        "host_nbytes": host,
        "mapped_nbytes": mapped,
        "host_peak_nbytes": peak,
        "devices": [device],
    }


def view_with(*readings, **options):
    return CaptureView(loop(facts={"memory": list(readings)}, **options))


def warnings(view):
    return [finding.title for finding in diagnose(view.capture).findings]


# Copies of the same data


def test_uploaded_data_is_on_the_host_and_on_the_device():
    data = data_copies_of(upload("Tensor.to", key=same, nbytes=4 * MiB, **ON_GPU))
    assert (data.places, data.nbytes, data.held_nbytes) == (("host", "cuda:0"), 4 * MiB, 8 * MiB)


def test_a_chain_of_copies_counts_as_one_piece_of_data():
    data = data_copies_of(
        upload("torch.tensor", line=1, key=same, device="cpu"),
        upload("Tensor.to", line=2, key=same, device="cuda:0", pinned=True),
    )
    assert data.places == ("host", "page-locked", "cuda:0", "host")
    assert (data.pieces, data.held_nbytes) == (1, 4 * MiB)


def test_copied_bytes_count_every_time_and_distinct_data_counts_once():
    data = data_copies_of(upload("Tensor.to", key=keys_in_turn(5), **ON_GPU))
    assert (data.pieces, data.different_nbytes, data.copied_nbytes) == (5, 5 * MiB, 50 * MiB)


def test_two_devices_are_two_places():
    data = data_copies_of(upload(line=1, key=same, device="cuda:0"), upload(line=2, key=same, device="cuda:1"))
    assert data.places == ("host", "cuda:0", "cuda:1")


def test_float64_data_takes_twice_the_bytes_of_its_float32_copy():
    data = data_copies_of(upload(key=same, from_dtype="float64", dtype="float32", **ON_GPU))
    assert (data.nbytes, data.held_nbytes) == (2 * MiB, 3 * MiB)


def test_a_list_takes_32_bytes_per_number():
    assert data_copies_of(upload(key=same, from_dtype="list", dtype="float32")).nbytes == 8 * MiB


def test_views_and_uploads_without_a_key_are_not_copies():
    views = loop(upload("torch.from_numpy", nbytes=0, copied=False), upload(key=""))
    assert memory_usage(CaptureView(views)).data_copies == ()


# Constants of graphs


def test_constants_are_counted_in_every_graph_that_holds_them():
    traces = [compile_(line=3, constants_nbytes=MiB), compile_(line=3, constants_nbytes=2 * MiB)]
    (constant,) = memory_usage(CaptureView(loop(before=traces, frameworks=TENSORFLOW))).graph_constants
    assert (constant.line.number, constant.nbytes, constant.times, constant.total_nbytes) == (3, 2 * MiB, 2, 3 * MiB)


# Memory levels


def test_memory_is_reported_for_the_loop_and_at_its_peak():
    host, device = memory_usage(view_with(reading(0, 0), reading(60, 5 * GiB), reading(0, GiB))).levels
    assert host == MemoryLevel("host", None, 2 * GiB, None, 3 * GiB, 32 * GiB, 0.0)
    assert device == MemoryLevel("cuda:0", "torch", 5 * GiB, 8 * GiB, 2 * GiB, 40 * GiB, 0.0)


def test_memory_mapped_files_do_not_count_as_memory_of_the_process():
    files = view_with(reading(60, GiB, mapped=20 * GiB, peak=31 * GiB, host=4 * GiB))
    assert memory_usage(files).levels[0].peak_nbytes == 11 * GiB
    assert warnings(files) == []


def test_the_driver_gives_the_memory_size_that_a_framework_does_not_report():
    view = view_with(reading(60, GiB, total_nbytes=None, framework="tensorflow", device="GPU:0"))
    view.capture.facts["gauges"] = [{"total_nbytes": 80 * GiB}]
    assert memory_usage(view).levels[1].total_nbytes == 80 * GiB


def test_without_readings_there_is_no_memory_sentence():
    assert memory_usage(CaptureView(loop())).levels == ()
    assert side_notes.describe_memory(CaptureView(loop())) == ""


def test_memory_that_grows_at_every_reading_is_a_warning():
    growing = view_with(reading(60, GiB), reading(70, GiB + 100 * MiB), reading(90, GiB + 300 * MiB))
    assert warnings(growing) == [
        "cuda:0 of torch needs 10.0 MiB more memory with every step; 3,994 more steps will fill it"
    ]


@pytest.mark.parametrize(
    "readings",
    [
        [reading(60, GiB), reading(70, 2 * GiB), reading(90, GiB)],
        [reading(60, GiB), reading(90, 2 * GiB)],
        [reading(60, GiB), reading(70, GiB + 10), reading(90, GiB + 30)],
        [reading(0, GiB), reading(60, 2 * GiB), reading(70, 2 * GiB), reading(90, 2 * GiB)],
    ],
)
def test_memory_that_does_not_grow_steadily_or_grows_slowly_is_no_warning(readings):
    assert warnings(view_with(*readings)) == []


def test_a_device_that_was_almost_full_at_its_peak_is_a_warning():
    full = reading(60, GiB) | {"devices": [{"framework": "jax", "device": "gpu:3", "used_nbytes": GiB}]}
    full["devices"][0] |= {"peak_nbytes": 39 * GiB, "total_nbytes": 40 * GiB}
    assert warnings(view_with(full)) == ["gpu:3 of jax was 98% full at its peak (39.0 GiB of 40.0 GiB)"]


def test_the_summary_is_one_sentence():
    view = CaptureView(loop(upload("Tensor.to", key=same, **ON_GPU), facts={"memory": [reading(60, GiB)]}))
    assert side_notes.describe_memory(view) == (
        "peak use: host 3.0 GiB of 32.0 GiB, cuda:0 2.0 GiB of 40.0 GiB (8.0 GiB reserved); "
        "an array of 1.0 MiB occupies 2.0 MiB (host, cuda:0); "
        "the script uploaded 50.0 MiB in total, but its arrays contain only 1.0 MiB"
    )


# Memory readings


def test_process_memory_is_read_without_any_framework():
    memory = read_memory()
    assert 1 * MiB < memory["host_nbytes"] <= memory["host_peak_nbytes"]


ALLOCATES = """
import json, mmap
from forebay.doctor.capture.memory_samples import MemorySampler
readings = MemorySampler()
readings.sample("before")
kept = mmap.mmap(-1, 64 << 20)  # new pages; an allocator could reuse freed pages
kept.write(bytes([1]) * len(kept))
readings.sample("after", steps=7)
print(json.dumps(readings.samples))
"""


def test_a_reading_grows_by_the_memory_that_the_process_allocated():
    """The readings are from a new process, because threads of earlier tests may release memory at any time."""
    done = subprocess.run([sys.executable, "-c", ALLOCATES], capture_output=True, text=True, timeout=60, check=True)
    before, after = json.loads(done.stdout)
    assert after["host_nbytes"] - before["host_nbytes"] > 0.9 * 64 * MiB
    assert (after["when"], after["steps"]) == ("after", 7)


def cuda(*, initialized):
    stats = {"allocated_bytes.all.current": 1, "reserved_bytes.all.current": 3, "allocated_bytes.all.peak": 2}
    stats |= {"num_alloc_retries": 4, "inactive_split_bytes.all.current": 7}
    return SimpleNamespace(
        is_initialized=lambda: initialized,
        device_count=lambda: 1,
        memory_stats=lambda number: stats | {"reserved_bytes.all.peak": 3},
        get_device_properties=lambda number: SimpleNamespace(total_memory=9),
        host_memory_stats=lambda: {"allocated_bytes.current": 5, "allocated_bytes.peak": 6},
    )


def test_pytorch_reports_devices_and_page_locked_memory(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda(initialized=True)))
    memory = read_memory()
    expected = {"used_nbytes": 1, "reserved_nbytes": 3, "peak_nbytes": 2, "total_nbytes": 9, "retries": 4}
    expected["inactive_nbytes"] = 7
    assert memory["devices"][0] == {"framework": "torch", "device": "cuda:0"} | expected
    assert (memory["pinned_nbytes"], memory["pinned_peak_nbytes"]) == (5, 6)


def test_a_framework_with_an_uninitialized_device_is_not_read(monkeypatch):
    uninitialized = cuda(initialized=False)
    uninitialized.memory_stats = uninitialized.host_memory_stats = pytest.fail
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=uninitialized))
    bridge = SimpleNamespace(backends_are_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=pytest.fail))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=None))
    context = SimpleNamespace(context_safe=lambda: None)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
    assert read_memory()["devices"] == []


def test_a_framework_of_an_unknown_version_does_not_raise(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert read_memory()["host_nbytes"] > 0


def test_memory_is_read_at_the_start_and_end_of_a_run_and_between_its_phases():
    session = Session(StepDetector(warm_up=1, steps=3, untraced_steps=2, short_seconds=0.0))
    session.start()
    for _ in range(10):
        session.ledger.write((EventKind.STEP, "optimizer.step", 0), 1, time.perf_counter_ns())
    session.stop()
    readings = session.capture("train.py").facts["memory"]
    taken = [(reading["when"], reading["steps"]) for reading in readings]
    assert taken == [("begun", 0), ("watched", 4), ("traced", 4), ("timed", 7), ("ended", 10)]
