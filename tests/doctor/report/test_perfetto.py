"""The Perfetto trace, read with the message classes of Perfetto: names, tracks and slices."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
from tests.doctor.report import report_samples as samples
from tests.doctor.report.trace_reader import read_trace

from forebay.doctor.report import perfetto_wire
from forebay.doctor.report.perfetto import save_trace
from forebay.doctor.report.perfetto_wire import encode_integer, encode_message, encode_text

MESSAGES = ["DebugAnnotation", "InternedData", "ProcessDescriptor", "TracePacket", "TrackDescriptor", "TrackEvent"]
SAMPLES = ["ordinary", "crowded", "no_loop", "no_framework", "hostile", "streaming"]


@pytest.fixture
def trace(tmp_path):
    save_trace(samples.ordinary().view, tmp_path / "run.pftrace")
    return read_trace(tmp_path / "run.pftrace")


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_have_the_numbers_of_the_perfetto_schema(name):
    known = {field.name: field.number for field in getattr(perfetto, name).DESCRIPTOR.fields}
    ours = {field: value for field, value in vars(getattr(perfetto_wire, name)).items() if not field.startswith("_")}
    assert ours.items() <= known.items()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_slice_begins_and_ends_on_its_track(tmp_path, name):
    save_trace(getattr(samples, name)().view, tmp_path / "run.pftrace")
    trace = read_trace(tmp_path / "run.pftrace")
    assert trace.open == {}
    assert all(found.end >= found.start for found in trace.slices)


def test_each_thread_has_a_track_and_steps_have_their_own(trace):
    counts = Counter(found.track for found in trace.slices)
    assert counts == {"profiled steps": 50, "the loop": 3 * 51, "the loop, nested": 51, "thread 2": 51}


def test_each_device_stream_has_a_track(tmp_path):
    save_trace(samples.streaming().view, tmp_path / "run.pftrace")
    trace = read_trace(tmp_path / "run.pftrace")
    counts = Counter((found.track, found.name) for found in trace.slices if "stream" in found.track)
    assert counts == {("cuda:0 stream 7", "copy"): 10, ("cuda:0 stream 13", "sgemm_128x128_nn"): 30}
    copy = next(found for found in trace.slices if found.name == "copy")
    assert copy.annotations == {"bytes": 12_000_000, "device": "cuda:0", "stream": "7", "memory": "pageable to device"}


def test_a_slice_has_name_line_time_and_bytes(trace):
    first = next(found for found in trace.slices if found.name == "torch.tensor")
    assert (first.start, first.end) == (2_000_000, 8_000_000)
    assert first.category == "upload"
    assert first.annotations == {
        "line": "/home/me/project/train.py:34",
        "source": 'images = torch.tensor(images, device="cuda")',
        "bytes": 12_000_000,
        "dtype": "float32",
    }


def test_slices_of_a_track_do_not_overlap(trace):
    loop = sorted((found.start, found.end) for found in trace.slices if found.track == "the loop")
    assert all(before[1] <= after[0] for before, after in pairwise(loop))


def test_a_name_that_recurs_is_written_once(tmp_path):
    save_trace(samples.ordinary().view, tmp_path / "run.pftrace")
    assert (tmp_path / "run.pftrace").read_bytes().count(b"torch.tensor(images") == 1


def test_events_without_duration_are_instants(tmp_path):
    events = [event._replace(end=event.start) for event in samples.steps_of(2)]
    save_trace(samples.diagnosis_of(samples.capture_of(events, steps=0)).view, tmp_path / "run.pftrace")
    assert read_trace(tmp_path / "run.pftrace").instants == 10


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])))
def test_protobuf_reads_encoded_numbers_and_texts(value, words):
    read = perfetto.DebugAnnotation()
    read.ParseFromString(encode_integer(4, value) + encode_text(10, words))
    assert (read.int_value, read.name) == (value, words)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_protobuf_reads_encoded_nested_messages(values):
    read = perfetto.Trace()
    read.ParseFromString(b"".join(encode_message(1, encode_integer(8, value)) for value in values))
    assert [packet.timestamp for packet in read.packet] == values
