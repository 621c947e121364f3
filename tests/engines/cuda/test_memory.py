"""The memory of one slot: its layout, its host buffer, its events and its lifetime."""

import ctypes
import gc
import mmap
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout
from forebay.engines.cuda import memory as cuda_memory
from forebay.engines.cuda.memory import CudaMemory, PageLockedMemory
from forebay.errors import DeviceError

POINTER = 0x7F00_0000_0000


class Owner:
    """An array of a framework that owns the memory of a slot."""


class Device:
    """A device that only records its calls."""

    index = 3

    def __init__(self):
        self.calls = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def page_lock(self, address, nbytes, *, read_only=False):
        self.calls.append(("lock", address, nbytes))

    def page_unlock(self, address):
        self.calls.append(("unlock", address))


class Event:
    """An event that fires when code waits for it."""

    def __init__(self, device):
        self.has_fired, self.calls = False, []
        device.calls.append(("event", self))

    def record(self, stream):
        self.calls.append(("record", stream))

    def wait(self):
        self.has_fired = True
        self.calls.append(("wait",))

    def close(self):
        self.calls.append(("close",))


class Stream:
    """A stream that records what it waits for."""

    def __init__(self):
        self.waits = []

    def wait_for(self, event):
        self.waits.append(event)

    def wait_for_value(self, pointer, value):
        self.waits.append((pointer, value))


@pytest.fixture(autouse=True)
def events(monkeypatch):
    monkeypatch.setattr(cuda_memory, "Event", Event)


@pytest.fixture
def consumer_streams(monkeypatch):
    """Streams of the consumer that wait for events. A stream that captures a graph cannot wait."""
    recorded_calls = SimpleNamespace(waits=[], capturing=set())

    def make_stream_wait(stream, event):
        recorded_calls.waits += [] if stream in recorded_calls.capturing else [(stream, event)]
        return stream not in recorded_calls.capturing

    monkeypatch.setattr(cuda_memory, "make_stream_wait", make_stream_wait)
    return recorded_calls


def slot(nbytes=4096, *, owner=None, pointer=POINTER, shared=False):
    return CudaMemory(Device(), Stream(), nbytes, pointer, owner, shared=shared)


def refuse(address, nbytes):
    raise DeviceError("no more memory can be locked")


def test_the_owner_lives_as_long_as_a_capsule_of_its_memory():
    owner = Owner()
    gone, memory = weakref.ref(owner), slot(owner=owner)
    capsule = memory.root(Layout.of([ArraySpec((3,), "float32")], batch_rows=4), 0, 0)[1:2].capsule()
    del owner
    memory.close()
    del memory
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


def test_closing_a_slot_without_batches_releases_the_owner():
    owner = Owner()
    gone, memory = weakref.ref(owner), slot(owner=owner)
    del owner
    memory.close()
    assert gone() is None


@given(rows=st.integers(1, 9), batches=st.integers(1, 4), pointer=st.integers(1, 2**40).map(lambda n: n * 256))
def test_addresses_of_roots_follow_the_layout(rows, batches, pointer):
    specs = [ArraySpec((5,), "float32"), ArraySpec((), "uint8")]
    layout = Layout.of(specs, batch_rows=rows, batches=batches, alignment=DEVICE_ALIGNMENT)
    memory = slot(layout.nbytes, pointer=pointer)
    places = [(leaf, batch) for leaf in range(2) for batch in range(batches)]
    actual = [memory.root(layout, *place) for place in places]
    expected = [pointer + layout.offsets[leaf] + batch * layout.strides[leaf] for leaf, batch in places]
    assert [root.pointer for root in actual] == expected
    assert all(root.pointer % DEVICE_ALIGNMENT == 0 for root in actual)
    assert [memory.lease_object(root).shape for root in actual] == [specs[leaf].batch_shape(rows) for leaf, _ in places]


def test_the_host_buffer_is_allocated_and_locked_at_first_use():
    memory = slot(5000)
    assert "lock" not in [call[0] for call in memory.device.calls]
    np.frombuffer(memory.host, np.uint8)[:] = 7
    address = memory.host_address
    assert ("lock", address, 5000) in memory.device.calls
    assert ctypes.string_at(address, 5000) == b"\x07" * 5000
    assert memory.block is None
    memory.close()
    assert [call[0] for call in memory.device.calls].count("unlock") == 1
    assert ("unlock", address) in memory.device.calls


def test_the_host_buffer_for_worker_processes_is_a_shared_block():
    memory = slot(4096, shared=True)
    assert memory.block.nbytes == 4096
    assert memory.host is memory.block.memory
    block = memory.block
    memory.close()
    assert block.closed


def test_closing_waits_for_a_copy_in_flight():
    memory = slot()
    memory.in_flight = True
    memory.close()
    assert memory.arrival_event.calls == [("wait",), ("close",)]


def test_closing_a_slot_closes_its_workspace():
    memory, closed = slot(), []
    memory.workspace = SimpleNamespace(close=lambda: closed.append(True))
    memory.close()
    assert closed == [True]


def test_a_consumers_stream_waits_for_rows_that_have_not_arrived(consumer_streams):
    memory = slot()
    memory.make_stream_wait_for_arrival(7)
    assert consumer_streams.waits == [(7, memory.arrival_event)]
    assert not memory.arrival_event.has_fired


def test_a_consumers_stream_does_not_wait_for_rows_that_have_arrived(consumer_streams):
    memory = slot()
    memory.arrival_event.has_fired = True
    memory.make_stream_wait_for_arrival(7)
    assert consumer_streams.waits == memory.arrival_event.calls == []


def test_the_thread_waits_if_the_stream_captures_a_graph(consumer_streams):
    memory = slot()
    consumer_streams.capturing.add(7)
    memory.make_stream_wait_for_arrival(7)
    assert consumer_streams.waits == []
    assert memory.arrival_event.calls == [("wait",)]


def test_a_fill_waits_for_every_stream_that_used_the_slot():
    memory = slot()
    memory.record_release([5, 9])
    assert [event.calls for event in memory._release_events] == [[("record", 5)], [("record", 9)]]
    memory.wait_for_release()
    assert memory.stream.waits == memory._release_events
    memory.wait_for_release()
    assert len(memory.stream.waits) == 2


def test_release_events_are_reused_and_only_current_events_count():
    memory = slot()
    memory.record_release([5, 9])
    memory.wait_for_release()
    memory.record_release([6])
    memory.wait_for_release()
    assert len(memory._release_events) == 2
    assert memory.stream.waits == [*memory._release_events, memory._release_events[0]]


def test_a_fill_waits_for_a_marker_once():
    memory = slot()
    memory.release_marker = SimpleNamespace(pointer=100, value=3)
    memory.wait_for_release()
    memory.wait_for_release()
    assert memory.stream.waits == [(100, 3)]


def test_closing_a_slot_closes_its_events():
    memory = slot()
    memory.record_release([5, 9])
    released = list(memory._release_events)
    memory.close()
    assert [event.calls[-1] for event in (memory.arrival_event, *released)] == [("close",)] * 3


@pytest.mark.parametrize("shared", [False, True])
def test_page_locked_memory_begins_on_a_page_and_is_unlocked_at_close(shared):
    device = Device()
    locked = PageLockedMemory(device, 10_000, shared=shared)
    assert locked.address % mmap.PAGESIZE == 0
    locked.close()
    assert device.calls == [("lock", locked.address, 10_000), ("unlock", locked.address)]


@pytest.mark.parametrize("shared", [False, True])
def test_page_locked_memory_is_unlocked_once_by_close_or_collection(shared):
    device = Device()
    closed, dropped = PageLockedMemory(device, 4096, shared=shared), PageLockedMemory(device, 4096)
    addresses = {closed.address, dropped.address}
    closed.close()
    closed.close()
    del closed, dropped
    gc.collect()
    unlocked = [call[1] for call in device.calls if call[0] == "unlock"]
    assert len(unlocked) == 2
    assert set(unlocked) == addresses


def test_a_slot_that_is_not_closed_leaves_no_page_lock():
    memory = slot()
    device, address = memory.device, memory.host_address
    assert ("unlock", address) not in device.calls
    del memory
    gc.collect()
    assert device.calls.count(("unlock", address)) == 1


def test_memory_that_could_not_be_locked_is_not_unlocked():
    device = Device()
    device.page_lock = refuse
    with pytest.raises(DeviceError, match="no more"):
        PageLockedMemory(device, 4096)
    gc.collect()
    assert device.calls == []
