"""One slot's memory: laid out on the device, locked on the host where it is asked for, and outliving the slot."""

import ctypes
import gc
import mmap
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout
from forebay.engines.cuda import memory as cuda_memory
from forebay.engines.cuda.memory import CudaMemory, LockedMemory
from forebay.errors import DeviceError

POINTER = 0x7F00_0000_0000


class Owner:
    """A framework's own array, whose memory a slot uses."""


class Device:
    """Locks nothing, and writes down what it was asked to."""

    index = 3

    def __init__(self):
        self.calls = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def lock(self, address, nbytes, *, read_only=False):
        self.calls.append(("lock", address, nbytes))

    def unlock(self, address):
        self.calls.append(("unlock", address))


class Event:
    """Has not fired before somebody waited for it."""

    def __init__(self, device):
        self.fired, self.calls = False, []
        device.calls.append(("event", self))

    def record(self, stream):
        self.calls.append(("record", stream))

    def wait(self):
        self.fired = True
        self.calls.append(("wait",))

    def close(self):
        self.calls.append(("close",))


class Stream:
    """Writes down what it is told to wait for."""

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
def foreign(monkeypatch):
    """Streams of others that were told to wait; those that capture a graph cannot be."""
    told = SimpleNamespace(waits=[], capturing=set())

    def wait_on_foreign(stream, event):
        told.waits += [] if stream in told.capturing else [(stream, event)]
        return stream not in told.capturing

    monkeypatch.setattr(cuda_memory, "wait_on_foreign", wait_on_foreign)
    return told


def slot(nbytes=4096, *, owner=None, pointer=POINTER, shared=False):
    return CudaMemory(Device(), Stream(), nbytes, pointer, owner, shared=shared)


def refuse(address, nbytes):
    raise DeviceError("no more memory can be locked")


def test_an_owner_lives_as_long_as_anything_is_seen_of_it():
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


def test_a_slot_that_nobody_sees_lets_its_owner_go_when_it_is_closed():
    owner = Owner()
    gone, memory = weakref.ref(owner), slot(owner=owner)
    del owner
    memory.close()
    assert gone() is None


@given(rows=st.integers(1, 9), batches=st.integers(1, 4), pointer=st.integers(1, 2**40).map(lambda n: n * 256))
@settings(max_examples=50, deadline=None)
def test_roots_lie_where_the_layout_says(rows, batches, pointer):
    specs = [ArraySpec((5,), "float32"), ArraySpec((), "uint8")]
    layout = Layout.of(specs, batch_rows=rows, batches=batches, alignment=DEVICE_ALIGNMENT)
    memory = slot(layout.nbytes, pointer=pointer)
    places = [(leaf, batch) for leaf in range(2) for batch in range(batches)]
    found = [memory.root(layout, *place) for place in places]
    expected = [pointer + layout.offsets[leaf] + batch * layout.strides[leaf] for leaf, batch in places]
    assert [root.pointer for root in found] == expected
    assert all(root.pointer % DEVICE_ALIGNMENT == 0 for root in found)
    assert [memory.counted(root).shape for root in found] == [specs[leaf].batch_shape(rows) for leaf, _ in places]


def test_host_memory_is_locked_when_it_is_asked_for_and_not_before():
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


def test_host_memory_for_worker_processes_is_a_shared_block():
    memory = slot(4096, shared=True)
    assert memory.block.nbytes == 4096
    assert memory.host is memory.block.memory
    block = memory.block
    memory.close()
    assert block.closed


def test_a_copy_under_way_is_waited_for_before_its_memory_goes():
    memory = slot()
    memory.in_flight = True
    memory.close()
    assert memory.arrived.calls == [("wait",), ("close",)]


def test_what_transports_keep_with_a_slot_goes_with_it():
    memory, closed = slot(), []
    memory.workspace = SimpleNamespace(close=lambda: closed.append(True))
    memory.close()
    assert closed == [True]


def test_a_consumers_stream_waits_for_rows_that_have_not_arrived(foreign):
    memory = slot()
    memory.hold_back(7)
    assert foreign.waits == [(7, memory.arrived)]
    assert not memory.arrived.fired


def test_a_consumers_stream_does_not_wait_for_rows_that_have(foreign):
    memory = slot()
    memory.arrived.fired = True
    memory.hold_back(7)
    assert foreign.waits == memory.arrived.calls == []


def test_for_a_stream_that_captures_a_graph_this_thread_waits(foreign):
    memory = slot()
    foreign.capturing.add(7)
    memory.hold_back(7)
    assert foreign.waits == []
    assert memory.arrived.calls == [("wait",)]


def test_a_slot_is_filled_again_behind_every_stream_it_was_released_on():
    memory = slot()
    memory.record_release([5, 9])
    assert [event.calls for event in memory._released] == [[("record", 5)], [("record", 9)]]
    memory.wait_for_release()
    assert memory.stream.waits == memory._released
    memory.wait_for_release()
    assert len(memory.stream.waits) == 2


def test_events_of_a_release_are_used_again_and_only_as_many_as_count_are_waited_for():
    memory = slot()
    memory.record_release([5, 9])
    memory.wait_for_release()
    memory.record_release([6])
    memory.wait_for_release()
    assert len(memory._released) == 2
    assert memory.stream.waits == [*memory._released, memory._released[0]]


def test_a_mark_is_waited_for_once():
    memory = slot()
    memory.behind = SimpleNamespace(pointer=100, value=3)
    memory.wait_for_release()
    memory.wait_for_release()
    assert memory.stream.waits == [(100, 3)]


def test_closing_a_slot_closes_its_events():
    memory = slot()
    memory.record_release([5, 9])
    released = list(memory._released)
    memory.close()
    assert [event.calls[-1] for event in (memory.arrived, *released)] == [("close",)] * 3


@pytest.mark.parametrize("shared", [False, True])
def test_locked_memory_begins_on_a_page_and_is_unlocked_in_the_end(shared):
    device = Device()
    locked = LockedMemory(device, 10_000, shared=shared)
    assert locked.address % mmap.PAGESIZE == 0
    locked.close()
    assert device.calls == [("lock", locked.address, 10_000), ("unlock", locked.address)]


@pytest.mark.parametrize("shared", [False, True])
def test_locked_memory_is_unlocked_once_however_it_goes(shared):
    device = Device()
    closed, dropped = LockedMemory(device, 4096, shared=shared), LockedMemory(device, 4096)
    addresses = {closed.address, dropped.address}
    closed.close()
    closed.close()
    del closed, dropped
    gc.collect()
    unlocked = [call[1] for call in device.calls if call[0] == "unlock"]
    assert len(unlocked) == 2
    assert set(unlocked) == addresses


def test_a_slot_that_is_not_closed_leaves_no_lock_behind():
    memory = slot()
    device, address = memory.device, memory.host_address
    assert ("unlock", address) not in device.calls
    del memory
    gc.collect()
    assert device.calls.count(("unlock", address)) == 1


def test_memory_that_could_not_be_locked_is_not_unlocked():
    device = Device()
    device.lock = refuse
    with pytest.raises(DeviceError, match="no more"):
        LockedMemory(device, 4096)
    gc.collect()
    assert device.calls == []
