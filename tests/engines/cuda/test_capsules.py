"""What is handed off: a capsule that points to the device, is counted on the host, and takes no memory there."""

import ctypes
import gc
import mmap
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.engines.cuda import memory as cuda_memory
from forebay.engines.cuda.memory import Root, Shadow
from forebay.feed.lease import Lease

POINTER = 0x7F00_0000_0000
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


class DLTensor(ctypes.Structure):
    """What a capsule points to, as DLPack defines it."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def root_of(array, *, delta=0, index=3):
    held = []
    memory = SimpleNamespace(device=SimpleNamespace(index=index), hold_back=held.append, held=held)
    return Root(memory, array, delta)


def shadow_array(shape=(4, 3), dtype="float32"):
    return np.ndarray(shape, dtype, buffer=Shadow(4096, None))


def tensor_in(capsule):
    return DLTensor.from_address(cuda_memory._capsule_pointer(capsule, b"dltensor"))


def pointer_in(capsule):
    return tensor_in(capsule).data


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def references(root):
    return sys.getrefcount(root.shadow)


def described(capsule):
    """All that a capsule says but where its data is."""
    found = tensor_in(capsule)
    shape, ndim = found.shape[: found.ndim], found.ndim
    return ndim, shape, found.code, found.bits, found.lanes, found.byte_offset


@given(
    delta=st.integers(-(2**46), 2**46),
    index=st.integers(0, 15),
    dtype=st.sampled_from(["uint8", "int64", "float16", "complex64"]),
    rows=st.integers(1, 5),
    start=st.integers(0, 4),
)
@settings(max_examples=100, deadline=None)
def test_a_capsule_points_to_the_device_and_says_so(delta, index, dtype, rows, start):
    array = shadow_array((5, 2), dtype)
    root = root_of(array, delta=delta, index=index)[start : start + rows]
    capsule = root.capsule()
    found = tensor_in(capsule)
    assert found.data == (array[start:].ctypes.data + delta) % 2**64
    assert (found.device_type, found.device_id) == (2, index)
    assert described(capsule) == described(array[start : start + rows].__dlpack__())


def test_a_root_knows_where_it_lies_on_the_device():
    array = shadow_array()
    root = root_of(array, delta=POINTER - array.ctypes.data)
    assert root.pointer == POINTER
    assert root[2:].pointer == pointer_in(root[2:].capsule()) == POINTER + 24
    assert root.__dlpack_device__() == (2, 3)


def test_making_a_capsule_leaves_the_root_as_it_is():
    root = root_of(shadow_array(), delta=100)
    pointers = [pointer_in(root.capsule()) for _ in range(3)]
    assert pointers == [root.shadow.ctypes.data + 100] * 3


def test_the_reference_count_of_the_shadow_rises_while_a_capsule_lives_and_falls_after():
    root = root_of(shadow_array(), delta=1 << 40)
    before = references(root)
    capsules = [root.capsule(), root.capsule()]
    assert references(root) == before + 2
    capsules.pop()
    assert references(root) == before + 1
    capsules.clear()
    assert references(root) == before


@pytest.mark.parametrize(
    "derive",
    [
        lambda root: root.capsule(),
        lambda root: root[1:3],
        lambda root: root[1:3].capsule(),
        lambda root: root[1:][:1].capsule(),
        lambda root: root.__dlpack__(stream=None),
    ],
)
def test_whatever_is_handed_off_keeps_the_lease(derive):
    root = root_of(shadow_array(), delta=1 << 40)
    lease = Lease(iter([root.shadow]))
    derived = derive(root)
    assert not lease.ended
    del derived
    gc.collect()
    assert lease.ended


def test_a_capsule_may_go_on_another_thread():
    root = root_of(shadow_array(), delta=1 << 40)
    lease, capsules = Lease(iter([root.shadow])), [root.capsule()]
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    assert lease.ended


@pytest.mark.parametrize(("stream", "held"), [(None, []), (-1, []), (0, [0]), (1, [1]), (140_000, [140_000])])
def test_a_stream_that_takes_a_root_over_is_held_until_it_has_arrived(stream, held):
    root = root_of(shadow_array())
    root.__dlpack__(stream=stream, max_version=(1, 0), copy=None)
    assert root._memory.held == held


# Shadows


@linux
def test_a_shadow_takes_addresses_and_no_memory():
    before = resident_nbytes()
    root = root_of(np.ndarray((1 << 20, 256), np.float32, buffer=Shadow(1 << 30, None)), delta=1 << 40)
    capsules = [root.capsule(), root[1000:].capsule()]
    assert resident_nbytes() - before < 64 << 20
    assert len(capsules) == 2


@linux
def test_a_shadow_is_not_counted_as_promised_memory_either():
    assert cuda_memory._UNTOUCHED & 0x4000  # MAP_NORESERVE
