"""upload_once on a GPU, for the framework in FOREBAY_FRAMEWORK.

test_upload.py runs this file once for each framework, in its own process, because frameworks conflict in one process.
"""

import importlib
import mmap
import os

import numpy as np
import pytest

from forebay.adapters.upload.upload_once import forget, upload_once
from forebay.core.c_functions import address_of
from forebay.engines.cuda.engine import device_at
from forebay.errors import DeviceError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
PAGE = 4096


@pytest.fixture(scope="module")
def framework():
    return importlib.import_module(FRAMEWORK)


def to_numpy(tensor):
    if FRAMEWORK == "torch":
        return tensor.cpu().numpy()
    return tensor.get() if FRAMEWORK == "cupy" else np.asarray(tensor)


def where(tensor):
    """Return the device name that the framework reports."""
    if FRAMEWORK == "jax":
        return str(next(iter(tensor.devices())))
    return str(tensor.device).replace("GPU:", "cuda:").replace("CUDA Device ", "cuda:")


def random_bytes(nbytes):
    return np.random.default_rng(nbytes).integers(256, size=nbytes, dtype=np.uint8)


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_tensors_are_on_the_gpu(device):
    assert "cuda" in where(upload_once(np.ones(10, np.float32), FRAMEWORK, device=device)).lower()


@pytest.mark.parametrize("nbytes", [1, PAGE, (4 << 20) - 1, 4 << 20, (5 << 20) + 3, (300 << 20) + 17, (600 << 20) + 1])
def test_arrays_of_any_size_arrive_complete(nbytes):
    array = random_bytes(nbytes)
    assert np.array_equal(to_numpy(upload_once(array, FRAMEWORK)), array)


def test_an_unaligned_array_arrives_complete():
    view = random_bytes(20 << 20)[4097:]
    assert np.array_equal(to_numpy(upload_once(view, FRAMEWORK)), view)


def test_an_upload_leaves_no_page_lock():
    array = random_bytes(20 << 20)
    upload_once(array, FRAMEWORK)
    device = device_at(0)
    assert not any(device.is_page_locked(address_of(array) + offset) for offset in (0, 10 << 20, (20 << 20) - 1))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_mapped_file_arrives_complete(tmp_path, mode):
    expected = random_bytes(30 << 20)
    np.save(tmp_path / "x.npy", expected)
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    assert np.array_equal(to_numpy(upload_once(mapped, FRAMEWORK)), expected)


@pytest.mark.parametrize("nbytes", [2 << 20, 20 << 20])
def test_an_array_that_other_code_page_locked_in_part_arrives_complete(nbytes):
    array, device = random_bytes(nbytes), device_at(0)
    start = (address_of(array) // PAGE + 100) * PAGE
    device.page_lock(start, 50 * PAGE)
    try:
        assert np.array_equal(to_numpy(upload_once(array, FRAMEWORK)), array)
    finally:
        device.page_unlock(start)


def test_an_array_that_other_code_page_locked_arrives_complete_and_stays_locked():
    device, pages = device_at(0), mmap.mmap(-1, 20 << 20)  # separate pages, so that no other array shares one
    array = np.ndarray(len(pages) - 32, np.uint8, buffer=pages, offset=16)
    array[...] = random_bytes(array.nbytes)
    start = address_of(array) - 16
    device.page_lock(start, len(pages))
    try:
        assert np.array_equal(to_numpy(upload_once(array, FRAMEWORK)), array)
        assert device.is_page_locked(address_of(array))
    finally:
        device.page_unlock(start)


@pytest.mark.skipif(FRAMEWORK not in ("torch", "cupy"), reason="reads the allocated bytes of torch or CuPy")
def test_forget_releases_device_memory(framework):
    used = framework.cuda.memory_allocated if FRAMEWORK == "torch" else framework.get_default_memory_pool().used_bytes
    array = random_bytes(64 << 20)
    upload_once(array, FRAMEWORK)
    with_array = used()
    forget(array)
    assert with_array - used() >= 64 << 20


@pytest.mark.skipif(FRAMEWORK != "torch", reason="only for CUDA graphs of PyTorch")
def test_an_upload_inside_a_cuda_graph_capture_is_refused_and_the_capture_continues(framework):
    counter, array = framework.zeros(4, device="cuda"), np.ones(4, np.float32)
    before = upload_once(np.ones(4, np.float32), "torch")
    graph = framework.cuda.CUDAGraph()
    with framework.cuda.graph(graph):
        with pytest.raises(DeviceError, match="captured"):
            upload_once(array, "torch")
        counter += before
    graph.replay()
    graph.replay()
    assert counter.tolist() == [2.0] * 4
    assert array.flags.writeable
