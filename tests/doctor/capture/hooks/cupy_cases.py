"""What the ledger holds of calls of CuPy. Run by test_cupy_hooks, with a stand-in for CuPy."""

import copy
import pickle

import cupy
import numpy as np
import pytest
from tests.doctor.capture.hooks.hook_scripts import watched

SOURCE = 'extern "C" __global__ void __launch_bounds__(256) halve(float* x) {}'


@pytest.mark.parametrize(
    ("read", "api"),
    [
        (float, "float(array)"),
        (int, "int(array)"),
        (bool, "bool(array)"),
        (complex, "complex(array)"),
        (str, "print(array)"),
        (repr, "print(array)"),
        (lambda array: f"{array:.2f}", "format(array)"),
        (lambda array: array.item(), "cupy.ndarray.item"),
        (lambda array: array.tolist(), "cupy.ndarray.tolist"),
        (lambda array: array.get(), "cupy.ndarray.get"),
        (lambda array: cupy.asnumpy(array), "cupy.asnumpy"),
    ],
)
def test_every_way_to_read_an_array_is_one_download(read, api):
    array = cupy.ones((), dtype=cupy.float32)
    downloads = watched(lambda: read(array)).of("download")
    assert [(event.api, event.nbytes, event.detail["device"]) for event in downloads] == [(api, 4, "cuda:0")]


def test_what_cupy_refuses_stays_refused():
    with pytest.raises(TypeError, match="Implicit conversion"):
        watched(lambda: np.asarray(cupy.ones(3)))


def test_numpys_own_arrays_are_no_downloads():
    assert watched(lambda: cupy.asnumpy(np.ones(3))).of("download") == []


def test_an_upload_tells_what_the_data_was():
    data = np.ones((64, 64))
    (event,) = watched(lambda: cupy.asarray(data, dtype=cupy.float32)).of("upload")
    assert (event.nbytes, event.detail["from_dtype"], event.detail["dtype"]) == (64 * 64 * 4, "float64", "float32")
    assert event.detail["pinned"] is False


def test_page_locked_memory_is_known():
    data = np.frombuffer(cupy.cuda.alloc_pinned_memory(8192), np.float32).reshape(32, 64)
    assert watched(lambda: cupy.asarray(data[1:])).details("upload", "pinned") == [True]


def test_memory_of_others_is_not_judged():
    data = np.frombuffer(bytearray(8192), np.float32)
    assert watched(lambda: cupy.asarray(data)).details("upload", "pinned") == [None]


def test_a_filled_array_is_an_upload():
    array, data = cupy.ones((64, 64)), np.ones((64, 64))
    assert [event.nbytes for event in watched(lambda: array.set(data)).of("upload")] == [64 * 64 * 8]


@pytest.mark.parametrize("make", [lambda array: cupy.asarray(array), lambda array: cupy.array([array, array])])
def test_what_is_made_of_device_arrays_is_no_upload(make):
    array = cupy.ones(3)
    assert watched(lambda: make(array)).of("upload") == []


@pytest.mark.parametrize(
    ("wait", "api"),
    [
        (lambda: cupy.cuda.Stream().synchronize(), "cupy.cuda.Stream.synchronize"),
        (lambda: cupy.cuda.Stream.null.synchronize(), "cupy.cuda.Stream.synchronize"),
        (lambda: cupy.cuda.Event().synchronize(), "cupy.cuda.Event.synchronize"),
        (lambda: cupy.cuda.Device(0).synchronize(), "cupy.cuda.Device.synchronize"),
        (lambda: cupy.cuda.runtime.deviceSynchronize(), "cupy.cuda.runtime.deviceSynchronize"),
    ],
)
def test_a_wait_that_was_asked_for_is_one_event(wait, api):
    assert [event.api for event in watched(wait).of("sync")] == [api]


def test_a_kernel_is_made_once_compiled_once_and_run_often():
    def run():
        kernel = cupy.RawKernel(SOURCE, "halve")
        return [kernel((1,), (256,), ()) for _ in range(3)]

    seen = watched(run)
    assert [event.kind for event in seen.events] == ["build", "compile", "run", "run", "run"]
    assert seen.details("build", "function") == seen.details("compile", "function") == ["halve"]


def test_classes_in_the_place_of_others_pass_for_them():
    def run():
        kernel, derived = cupy.RawKernel(SOURCE, "halve"), type("Derived", (cupy.RawKernel,), {})
        return (
            isinstance(kernel, cupy.RawKernel),
            isinstance(before, cupy.RawKernel),
            isinstance(derived(SOURCE, "halve"), cupy.RawKernel),
            isinstance(kernel, derived),
            issubclass(derived, cupy.RawKernel),
            cupy.cuda.Device(0) == device == cupy.cuda.Device(0),
        )

    before, device = cupy.RawKernel(SOURCE, "halve"), cupy.cuda.Device(0)
    assert watched(run).result == (True, True, True, False, True, True)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_kernels_are_pickled_as_cupys(protocol):
    pickled = watched(lambda: pickle.dumps(cupy.RawKernel(SOURCE, "halve"), protocol)).result
    assert type(pickle.loads(pickled)) is cupy.RawKernel
    assert pickle.loads(pickled).name == "halve"


def test_kernels_can_be_copied():
    assert watched(lambda: copy.deepcopy(cupy.RawKernel(SOURCE, "halve")).name).result == "halve"


def test_hooks_are_undone():
    owners = (cupy, cupy.ndarray, cupy.cuda, cupy.cuda.Stream, cupy.cuda.Event, cupy.cuda.runtime, cupy.cuda.compiler)
    before = [dict(vars(owner)) for owner in owners]
    watched(lambda: cupy.asarray([1.0]))
    assert [dict(vars(owner)) for owner in owners] == before


def test_objects_outlive_the_watch_and_are_silent():
    kernel, device = watched(lambda: (cupy.RawKernel(SOURCE, "halve"), cupy.cuda.Device(0))).result
    silent = watched(lambda: (kernel((1,), (1,), ()), device.synchronize()))
    assert silent.of("run") == silent.of("sync") == []
