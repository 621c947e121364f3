"""DLPack capsules of device memory, and the shadow arrays that count their references."""

import ctypes
import gc
import mmap
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.engines.cuda import memory as cuda_memory
from forebay.engines.cuda.memory import DeviceRoot, ShadowArray
from forebay.feed.slot import Lease

POINTER = 0x7F00_0000_0000
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class DLTensor(ctypes.Structure):
    """The DLTensor struct of DLPack."""

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
    waiting_streams = []
    memory = SimpleNamespace(
        device=SimpleNamespace(index=index),
        make_stream_wait_for_arrival=waiting_streams.append,
        waiting_streams=waiting_streams,
    )
    return DeviceRoot(memory, array, delta)


def shadow_array(shape=(4, 3), dtype="float32"):
    return np.ndarray(shape, dtype, buffer=ShadowArray(4096, None))


def tensor_in(capsule):
    return DLTensor.from_address(cuda_memory._get_capsule_pointer(capsule, b"dltensor"))


def pointer_in(capsule):
    return tensor_in(capsule).data


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def references(root):
    return sys.getrefcount(root.shadow)


def describe_tensor(capsule):
    """Return the dimensions, the dtype and the byte offset of the tensor in a capsule."""
    tensor = tensor_in(capsule)
    shape, ndim = tensor.shape[: tensor.ndim], tensor.ndim
    return ndim, shape, tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset


@given(
    delta=st.integers(-(2**46), 2**46),
    index=st.integers(0, 15),
    dtype=st.sampled_from(["uint8", "int64", "float16", "complex64"]),
    rows=st.integers(1, 5),
    start=st.integers(0, 4),
)
def test_a_capsule_has_the_device_address_and_the_device_type(delta, index, dtype, rows, start):
    array = shadow_array((5, 2), dtype)
    root = root_of(array, delta=delta, index=index)[start : start + rows]
    capsule = root.capsule()
    tensor = tensor_in(capsule)
    assert tensor.data == (array[start:].ctypes.data + delta) % 2**64
    assert (tensor.device_type, tensor.device_id) == (2, index)
    assert describe_tensor(capsule) == describe_tensor(array[start : start + rows].__dlpack__())


def test_a_root_has_its_device_address():
    array = shadow_array()
    root = root_of(array, delta=POINTER - array.ctypes.data)
    assert root.pointer == POINTER
    assert root[2:].pointer == pointer_in(root[2:].capsule()) == POINTER + 24
    assert root.__dlpack_device__() == (2, 3)


def test_a_capsule_does_not_change_its_root():
    root = root_of(shadow_array(), delta=100)
    pointers = [pointer_in(root.capsule()) for _ in range(3)]
    assert pointers == [root.shadow.ctypes.data + 100] * 3


def test_a_capsule_holds_one_reference_to_the_shadow():
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
def test_everything_derived_from_a_root_holds_the_lease(derive):
    root = root_of(shadow_array(), delta=1 << 40)
    lease = Lease(iter([root.shadow]))
    derived = derive(root)
    assert not lease.is_released
    del derived
    gc.collect()
    assert lease.is_released


def test_a_capsule_may_be_released_on_another_thread():
    root = root_of(shadow_array(), delta=1 << 40)
    lease, capsules = Lease(iter([root.shadow])), [root.capsule()]
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    assert lease.is_released


@pytest.mark.parametrize(
    ("stream", "waiting_streams"), [(None, []), (-1, []), (0, [0]), (1, [1]), (140_000, [140_000])]
)
def test_the_stream_given_to_dlpack_waits_for_the_rows(stream, waiting_streams):
    root = root_of(shadow_array())
    root.__dlpack__(stream=stream, max_version=(1, 0), copy=None)
    assert root._memory.waiting_streams == waiting_streams


# Shadow arrays


@linux
def test_a_shadow_uses_address_space_and_no_memory():
    before = resident_nbytes()
    root = root_of(np.ndarray((1 << 20, 256), np.float32, buffer=ShadowArray(1 << 30, None)), delta=1 << 40)
    capsules = [root.capsule(), root[1000:].capsule()]
    assert resident_nbytes() - before < 64 << 20
    assert len(capsules) == 2


@linux
def test_a_shadow_reserves_no_swap_space():
    assert cuda_memory._SHADOW_FLAGS & 0x4000  # MAP_NORESERVE
