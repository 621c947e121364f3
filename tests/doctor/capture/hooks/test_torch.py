"""The events that the PyTorch hooks record for each faulty script and for its healthy twin."""

from collections import Counter

import pytest
from tests.support.framework_processes import Captures

from forebay.doctor.model.events import EventKind

FAULTS = (
    "conversion_in_loop",
    "input_bound",
    "loader",
    "many_small_copies",
    "read_back",
    "rebuilt",
    "repeated_upload",
    "retracing",
    "wide_dtype",
)


@pytest.fixture
def captures(framework_processes):
    return Captures(framework_processes, "torch")


def events(capture, kind, api=None):
    return [event for event in capture.events if event.kind == kind and api in (None, event.api)]


def per_step(capture, kind, api=None):
    """Return the events per step between the first and the last profiled step."""
    steps = [event.end for event in events(capture, EventKind.STEP) if event.end <= capture.window.end]
    inside = [event for event in events(capture, kind, api) if steps[0] < event.end < steps[-1]]
    return len(inside) / (len(steps) - 1)


def text(capture, event):
    return capture.lines[event.line].text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_script_and_its_twin_end_normally_without_notes(captures, fault):
    for capture in (captures[fault], captures[f"{fault}_healthy"]):
        assert (capture.ended, capture.notes) == ("done", ())


def test_uploads_of_the_same_data_have_one_key(captures):
    again, once = (events(captures[name], EventKind.UPLOAD) for name in ("repeated_upload", "repeated_upload_healthy"))
    assert len({event.detail["key"] for event in again}) == 1
    assert {(event.nbytes, text(captures["repeated_upload"], event)) for event in again} == {
        (12_000_000, "tensor = torch.tensor(data)")
    }
    assert (len(again), len(once)) == (200, 1)


def test_a_read_back_is_one_download_per_step(captures):
    assert per_step(captures["read_back"], EventKind.DOWNLOAD, "Tensor.item") == 1
    assert {event.detail["device"] for event in events(captures["read_back"], EventKind.DOWNLOAD)} == {"cpu"}
    assert per_step(captures["read_back_healthy"], EventKind.DOWNLOAD) == 0


def test_each_conversion_of_a_batch_is_an_upload_with_a_new_key(captures):
    uploads = events(captures["conversion_in_loop"], EventKind.UPLOAD)
    assert {event.detail["from_dtype"] for event in uploads} == {"list"}
    assert len({event.detail["key"] for event in uploads}) == len(uploads)
    assert per_step(captures["conversion_in_loop"], EventKind.UPLOAD) == 1
    assert per_step(captures["conversion_in_loop_healthy"], EventKind.UPLOAD) == 0


def test_a_slow_dataset_has_one_input_wait_and_one_row_event_per_step(captures):
    capture = captures["input_bound"]
    assert per_step(capture, EventKind.INPUT) == per_step(capture, EventKind.PREPARE, "Dataset.__getitem__") == 1
    rows = events(capture, EventKind.PREPARE, "Dataset.__getitem__")
    assert Counter(text(capture, event) for event in rows) == {"def __getitem__(self, index):": len(rows)}
    assert per_step(captures["input_bound_healthy"], EventKind.INPUT) == 0


def test_input_waits_and_uploads_record_the_settings_of_the_loader(captures):
    capture = captures["loader"]
    uploads, waits = events(capture, EventKind.UPLOAD), events(capture, EventKind.INPUT)
    assert {(event.detail["non_blocking"], event.detail["pinned"]) for event in uploads} == {(True, False)}
    assert {(event.detail["workers"], event.detail["batch_rows"]) for event in waits} == {(0, 64)}
    healthy = events(captures["loader_healthy"], EventKind.INPUT)
    assert {(event.detail["workers"], event.detail["prefetch"]) for event in healthy} == {(1, 8)}


def test_a_loader_that_is_built_in_each_step_is_recorded(captures):
    assert per_step(captures["rebuilt"], EventKind.BUILD, "DataLoader(...)") == 1
    assert per_step(captures["rebuilt"], EventKind.BUILD, "iter(DataLoader)") == 1
    assert per_step(captures["rebuilt_healthy"], EventKind.BUILD) == 0


def test_each_compilation_is_recorded_with_its_reason_and_line(captures):
    compilations = events(captures["retracing"], EventKind.COMPILE)
    assert [event.detail["reason"] for event in compilations] == ["first"] + ["shape"] * 23
    assert {text(captures["retracing"], event) for event in compilations} == {"loss = loss_of(torch.rand(length, 16))"}
    assert per_step(captures["retracing"], EventKind.RUN) == 1
    assert len(events(captures["retracing_healthy"], EventKind.COMPILE)) == 1


def test_each_of_many_small_copies_is_recorded(captures):
    faulty, healthy = captures["many_small_copies"], captures["many_small_copies_healthy"]
    assert per_step(faulty, EventKind.UPLOAD, "torch.tensor") == per_step(faulty, EventKind.UPLOAD, "Tensor.to") == 100
    assert {event.nbytes for event in events(faulty, EventKind.UPLOAD)} == {256}
    assert per_step(healthy, EventKind.UPLOAD, "Tensor.to") == 1
    assert {event.nbytes for event in events(healthy, EventKind.UPLOAD, "torch.from_numpy")} == {0}


def test_an_upload_has_the_bytes_of_its_dtype(captures):
    wide, narrow = (
        events(captures[name], EventKind.UPLOAD, "Tensor.to") for name in ("wide_dtype", "wide_dtype_healthy")
    )
    assert {(event.nbytes, event.detail["dtype"]) for event in wide} == {(500 * 2048 * 8, "float64")}
    assert {(event.nbytes, event.detail["dtype"]) for event in narrow} == {(500 * 2048 * 4, "float32")}
