"""The list of crossings: each transfer and wait with its line, direction, cause and time."""

from dataclasses import replace

import pytest
from hypothesis import given
from tests.doctor.any_captures import captures
from tests.doctor.captures import (
    LOOP,
    MS,
    TORCH,
    TORCH_GPU,
    LedgerEvent,
    Line,
    Window,
    capture_of,
    download,
    loop,
    upload,
)

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.crossings import crossings_of, split_crossings, total_by_line, total_consecutive

CUDA = {"device": "cuda:0"}


def event(kind, api, start_ms, ms=1.0, nbytes=8, line=0, **detail):
    start = int(start_ms * MS)
    return LedgerEvent(kind, api, line, LOOP, start, start + int(ms * MS), nbytes, detail or None)


def crossings(*events, frameworks=TORCH_GPU, **fields):
    return crossings_of(CaptureView(replace(capture_of(events, frameworks=frameworks), started=0, **fields)))


def test_crossings_have_line_bytes_duration_and_the_time_since_the_start():
    capture = capture_of([event("upload", "Tensor.to", 7, 2, 4096, line=5, **CUDA)], frameworks=TORCH_GPU)
    (found,) = crossings_of(CaptureView(replace(capture, started=4 * MS)))
    assert found.line.number == 5
    assert found.nbytes == 4096
    assert found.start == pytest.approx(3e-3)
    assert found.seconds == pytest.approx(2e-3)


def test_crossings_are_in_order_of_time():
    found = crossings(event("download", "Tensor.cpu", 5, 1), event("upload", "Tensor.to", 1, 9))
    assert [each.api for each in found] == ["Tensor.to", "Tensor.cpu"]


@pytest.mark.parametrize(
    ("kind", "detail", "direction"),
    [
        ("upload", CUDA, "host to device"),
        ("upload", {"device": "cpu"}, "within the host"),
        ("upload", {"device": "CPU:0"}, "within the host"),
        ("download", {"device": "GPU:0"}, "device to host"),
        ("download", {"device": "cpu:0"}, "within the host"),
        ("move", {"source": "GPU:0", "target": "CPU:0"}, "device to host"),
        ("move", {"source": "CPU:0", "target": "GPU:0"}, "host to device"),
        ("move", {"source": "cuda:0", "target": "cuda:1", "device": "cuda:0"}, "device to device"),
        ("move", {"source": "CPU:0", "target": "CPU:1"}, "within the host"),
        ("sync", {}, None),
    ],
)
def test_the_devices_determine_the_direction(kind, detail, direction):
    assert crossings(event(kind, "call", 0, **detail))[0].direction == direction


@pytest.mark.parametrize(("frameworks", "direction"), [(TORCH_GPU, "host to device"), (TORCH, "within the host")])
def test_without_a_device_name_the_presence_of_a_gpu_determines_the_direction(frameworks, direction):
    assert crossings(event("upload", "Session.run", 0), frameworks=frameworks)[0].direction == direction


def test_a_build_event_is_a_crossing_only_if_it_moves_a_model():
    moved = {"what": "Module", "device": "cuda:0", "source": "cpu", "moved_nbytes": 1 << 20}
    found = crossings(event("build", "Module.to", 0, nbytes=0, **moved), event("build", "DataLoader", 1))
    assert [(each.kind, each.direction, each.nbytes) for each in found] == [("upload", "host to device", 1 << 20)]


@pytest.mark.parametrize(
    ("api", "is_implied"),
    [
        ("Tensor.to", False),
        ("torch.tensor", False),
        ("Module.cuda", False),
        ("float(tensor)", False),
        ("jax.device_put", False),
        ("jnp.asarray", False),
        ("tf.constant", False),
        ("cupy.asnumpy", False),
        ("cupy.cuda.runtime.deviceSynchronize", False),
        ("jax.Array.block_until_ready", False),
        ("bool(tensor)", True),
        ("print(array)", True),
        ("tensor[index]", True),
        ("torch.nonzero", True),
        ("jnp.sum", True),
        ("array + numpy", True),
        ("jax.jit: step(x)", True),
        ("tf.reduce_sum", True),
        ("tf.device", True),
        ("Model.fit", True),
        ("Session.run", True),
    ],
)
def test_a_crossing_is_implied_if_its_call_has_another_purpose(api, is_implied):
    assert crossings(event("upload", api, 0))[0].is_implied is is_implied


@pytest.mark.parametrize("api", ["np.asarray(tensor)", "np.array(tensor)", "np.asarray(array)", "np.array(array)"])
@pytest.mark.parametrize(("text", "is_implied"), [("x = np.asarray(y)", False), ("x = np.sum(y)", True), ("", False)])
def test_a_conversion_is_implied_if_its_known_line_calls_neither_array_nor_asarray(api, text, is_implied):
    found = crossings(event("download", api, 0), lines=(Line("train.py", 1, "f", text),))
    assert found[0].is_implied is is_implied


def test_a_hook_can_mark_a_crossing_as_implied():
    assert crossings(event("upload", "tf.convert_to_tensor", 0, implied=True))[0].is_implied


def test_a_move_inside_a_graph_has_no_duration():
    assert crossings(event("move", "tf.device", 0, 0, timed=False))[0].seconds is None


def test_crossings_of_the_loop_and_of_its_warm_up_are_not_listed():
    setup = [upload("jnp.asarray", line=3), upload("jnp.asarray", line=4)]
    capture = loop(upload("Tensor.to", line=7), download(line=8), before=setup, frameworks=TORCH_GPU)
    assert [each.line.number for each in crossings_of(CaptureView(capture))] == [3, 4]


def test_crossings_before_the_loop_are_listed_even_if_the_loop_uses_their_line():
    capture = loop(upload("Tensor.to", line=7, times=2), before=[upload("Tensor.to", line=7, times=3)])
    assert [each.start for each in crossings_of(CaptureView(capture))] == pytest.approx([0, 1e-3, 2e-3])


def test_a_crossing_that_the_loop_makes_once_is_listed():
    capture = loop(upload("Tensor.to", line=7), ms=5)
    once = event("download", "Tensor.cpu", 2, line=9)
    capture = replace(capture, events=tuple(sorted([*capture.events, once], key=lambda each: each.end)))
    assert [each.line.number for each in crossings_of(CaptureView(capture))] == [9]


def test_times_in_captures_of_version_0_1_count_from_the_window_or_the_first_event():
    capture = capture_of([event("upload", "Tensor.to", 7)], frameworks=TORCH_GPU)
    assert crossings_of(CaptureView(replace(capture, window=Window(2 * MS, 9 * MS))))[0].start == pytest.approx(5e-3)
    window = Window(8 * MS, 9 * MS, ("step", "optimizer.step", 39))
    assert crossings_of(CaptureView(replace(capture, window=window)))[0].start == 0


def test_crossings_beyond_the_limit_have_totals_by_line():
    uploads = [event("upload", "Tensor.to", at, nbytes=10, line=at % 2) for at in range(6)]
    listed, totals = split_crossings(crossings(*uploads, window=Window(anchor=("step", "s", 39))), 3)
    assert [each.line.number for each in listed] == [0, 1, 0]
    assert [(each.line.number, each.count, each.nbytes) for each in totals] == [(1, 2, 20), (0, 1, 10)]
    assert totals[0].seconds == pytest.approx(2e-3)


def test_consecutive_crossings_of_a_line_have_one_total():
    found = crossings(*(event("upload", "Tensor.to", at, line=line) for at, line in enumerate([0, 0, 1, 0])))
    assert [(first.start, total.count) for first, total in total_consecutive(found)] == [(0, 2), (2e-3, 1), (3e-3, 1)]


@pytest.mark.slow
@given(captures)
def test_totals_of_any_capture_contain_every_crossing_once(capture):
    view = CaptureView(capture)
    found = crossings_of(view)
    assert sum(total.count for _, total in total_consecutive(found)) == len(found)
    assert sum(total.nbytes for total in total_by_line(found)) == sum(each.nbytes for each in found)
    assert all(each.start >= 0 and (each.seconds is None or each.seconds >= 0) for each in found)
    if view.steps is None:
        kinds = ("upload", "download", "move", "sync")
        assert len(found) == sum(event.kind in kinds for event in capture.events)
