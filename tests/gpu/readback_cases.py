"""Read-back on a GPU, for the framework in FOREBAY_FRAMEWORK.

test_readback.py runs this file once for each framework, in its own process, because frameworks conflict in one process.
"""

import importlib
import os
import threading
import time
from functools import partial

import numpy as np
import pytest

from forebay.adapters.readback.readback import Readback, all_finite
from forebay.errors import DeviceError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
SIDE, PRODUCTS = 8192, 60  # rows and columns of a matrix, and products: some tenths of a second of work

only_for = {
    name: pytest.mark.skipif(name != FRAMEWORK, reason=f"only for {name}")
    for name in ("torch", "jax", "tensorflow", "cupy")
}
copied_by_forebay = pytest.mark.skipif(
    FRAMEWORK not in ("torch", "cupy"), reason="JAX and TensorFlow copy results themselves"
)


@pytest.fixture(scope="module")
def framework():
    return importlib.import_module(FRAMEWORK)


@pytest.fixture(scope="module")
def queue_work(framework):
    """Return a function that queues some tenths of a second of work, with the result 3.0."""
    library = framework.numpy if FRAMEWORK == "jax" else framework
    on_gpu = {"device": "cuda"} if FRAMEWORK == "torch" else {}
    ones = library.ones((SIDE, SIDE), dtype=library.float32, **on_gpu)

    def chain(ones):
        product = ones
        for _ in range(PRODUCTS):
            product = library.matmul(ones, product) / SIDE
        return product[0, 0] * 3

    # JAX queues only few operations at a time, so `jit` makes one operation of the chain.
    queue = partial(framework.jit(chain) if FRAMEWORK == "jax" else chain, ones)
    with Readback() as readback:
        readback.put(queue())  # the first call also compiles
    return queue


def test_put_does_not_wait_and_the_result_arrives_later(queue_work):
    readback = Readback()
    readback.put(queue_work(), tag="late")
    early = readback.ready()  # empty, because the work takes some tenths of a second
    (result,) = readback.drain()
    assert early == []
    assert result.tag == "late"
    assert float(result.value) == pytest.approx(3.0, rel=1e-2)


def test_results_of_long_work_come_back_in_order(queue_work):
    readback = Readback(limit=100)
    for step in range(50):
        readback.put({"loss": queue_work() if step == 0 else number(step)}, tag=step)
    found = readback.drain()
    assert [result.tag for result in found] == list(range(50))
    assert [round(float(result.value["loss"])) for result in found] == [3, *range(1, 50)]


def number(step):
    """Return a number in device memory."""
    framework = importlib.import_module(FRAMEWORK)
    if FRAMEWORK == "torch":
        return framework.tensor(float(step), device="cuda")
    if FRAMEWORK == "tensorflow":
        return framework.identity(framework.constant(float(step)))
    return framework.device_put(np.float32(step)) if FRAMEWORK == "jax" else framework.asarray(np.float32(step))


def test_large_results_come_back_complete(framework):
    array = np.random.default_rng(0).random(25_000_000).astype(np.float32)
    with Readback(limit=2) as readback:
        for _ in range(4):
            readback.put(on_device(framework, array))
            assert all(np.array_equal(result.value, array) for result in readback.ready())
    assert all(np.array_equal(result.value, array) for result in readback.drain())


def on_device(framework, array):
    if FRAMEWORK == "torch":
        return framework.from_numpy(array).cuda()
    if FRAMEWORK == "tensorflow":
        with framework.device("GPU:0"):
            return framework.identity(framework.constant(array))
    return framework.device_put(array) if FRAMEWORK == "jax" else framework.asarray(array)


@pytest.mark.parametrize("place", [0, 12_345_678, 24_999_999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_value_in_a_large_array_is_found(framework, place, value):
    array = np.ones(25_000_000, np.float32)
    good = on_device(framework, array.copy())
    array[place] = value
    readback = Readback()
    readback.put((all_finite([good]), all_finite([good, on_device(framework, array)])))
    ((_, (fine, spoilt)),) = readback.drain()
    assert fine
    assert not spoilt


@copied_by_forebay
def test_an_array_changed_in_place_comes_back_unchanged(framework, queue_work):
    tensor = on_device(framework, np.zeros(1_000_000, np.float32))
    readback = Readback()
    queue_work()
    readback.put(tensor)
    tensor += 1
    del tensor
    # New arrays may use the memory of the deleted tensor.
    new_arrays = [on_device(framework, np.full(1_000_000, 9, np.float32)) for _ in range(8)]
    assert not readback.drain()[0].value.any()
    assert len(new_arrays) == 8


@copied_by_forebay
def test_page_locked_memory_is_reused(framework):
    readback, found = Readback(limit=3), []
    for step in range(100):
        readback.put(number(step), tag=step)
        found += readback.ready()
    (reader,) = readback._copiers[FRAMEWORK]._readers._readers.values()
    assert len(reader._blocks) <= 3
    assert [result.tag for result in found + readback.drain()] == list(range(100))


@only_for["torch"]
def test_a_readback_inside_a_cuda_graph_capture_is_refused(framework):
    tensor, readback = framework.ones(4, device="cuda"), Readback()
    graph = framework.cuda.CUDAGraph()
    with framework.cuda.graph(graph):
        doubled = tensor * 2
        with pytest.raises(DeviceError, match="while a CUDA graph is captured"):
            readback.put(doubled)
    graph.replay()
    readback.put(doubled)
    assert readback.drain()[0].value.tolist() == [2.0] * 4


@only_for["torch"]
def test_ready_on_another_thread_does_not_break_a_cuda_graph_capture(framework, queue_work):
    readback, stop = Readback(), threading.Event()
    readback.put(queue_work())

    def poll():
        while not stop.is_set():
            readback.ready()

    poller = threading.Thread(target=poll)
    tensor, graph = framework.zeros(4, device="cuda"), framework.cuda.CUDAGraph()
    with framework.cuda.graph(graph):
        poller.start()
        tensor += 1
        time.sleep(0.05)
    stop.set()
    poller.join()
    graph.replay()
    assert tensor.tolist() == [1.0] * 4


@only_for["tensorflow"]
@pytest.mark.parametrize("compiled", [False, True])
def test_an_updated_variable_comes_back_with_its_old_value(framework, queue_work, compiled):
    variable = framework.Variable(framework.zeros(1_000_000))
    update = framework.function(lambda: variable.assign_add(framework.ones(1_000_000)), jit_compile=compiled)
    readback = Readback()
    queue_work()
    readback.put(variable)
    for _ in range(3):
        update()
    assert not readback.drain()[0].value.any()
    assert float(variable[0]) == 3.0


@only_for["jax"]
def test_a_donated_array_comes_back_unchanged(framework, queue_work):
    array = on_device(framework, np.zeros(1_000_000, np.float32))
    readback = Readback()
    queue_work()
    readback.put(array)
    framework.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    assert not readback.drain()[0].value.any()
