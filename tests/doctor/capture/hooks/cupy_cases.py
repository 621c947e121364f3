"""The events that calls of CuPy record. A stand-in replaces CuPy.

`test_framework_cases.py` runs this file in the process of the stand-in, because frameworks conflict in one process.
"""

import copy
import pickle

import cupy
import numpy as np
import pytest
from tests.doctor.capture.hooks.crossing_log import assert_listed
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
def test_every_kind_of_read_is_one_download(read, api):
    array = cupy.ones((), dtype=cupy.float32)
    downloads = watched(lambda: read(array)).of("download")
    assert [(event.api, event.nbytes, event.detail["device"]) for event in downloads] == [(api, 4, "cuda:0")]


def test_an_implicit_conversion_still_raises():
    with pytest.raises(TypeError, match="Implicit conversion"):
        watched(lambda: np.asarray(cupy.ones(3)))


def test_asnumpy_of_a_numpy_array_is_not_a_download():
    assert watched(lambda: cupy.asnumpy(np.ones(3))).of("download") == []


def test_an_upload_records_the_original_dtype():
    data = np.ones((64, 64))
    (event,) = watched(lambda: cupy.asarray(data, dtype=cupy.float32)).of("upload")
    assert (event.nbytes, event.detail["from_dtype"], event.detail["dtype"]) == (64 * 64 * 4, "float64", "float32")
    assert event.detail["pinned"] is False


def test_page_locked_memory_is_detected():
    data = np.frombuffer(cupy.cuda.alloc_pinned_memory(8192), np.float32).reshape(32, 64)
    assert watched(lambda: cupy.asarray(data[1:])).details("upload", "pinned") == [True]


def test_memory_of_unknown_origin_has_no_pinned_flag():
    data = np.frombuffer(bytearray(8192), np.float32)
    assert watched(lambda: cupy.asarray(data)).details("upload", "pinned") == [None]


def test_setting_an_array_is_an_upload():
    array, data = cupy.ones((64, 64)), np.ones((64, 64))
    assert [event.nbytes for event in watched(lambda: array.set(data)).of("upload")] == [64 * 64 * 8]


@pytest.mark.parametrize("make", [lambda array: cupy.asarray(array), lambda array: cupy.array([array, array])])
def test_an_array_made_of_device_arrays_is_not_an_upload(make):
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
def test_an_explicit_wait_is_one_event(wait, api):
    assert [event.api for event in watched(wait).of("sync")] == [api]


def test_a_kernel_is_built_once_compiled_once_and_run_several_times():
    def run():
        kernel = cupy.RawKernel(SOURCE, "halve")
        return [kernel((1,), (256,), ()) for _ in range(3)]

    seen = watched(run)
    assert [event.kind for event in seen.events] == ["build", "compile", "run", "run", "run"]
    assert seen.details("build", "function") == seen.details("compile", "function") == ["halve"]


def test_a_replaced_class_passes_instance_checks():
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
def test_kernels_are_pickled_as_kernels_of_cupy(protocol):
    pickled = watched(lambda: pickle.dumps(cupy.RawKernel(SOURCE, "halve"), protocol)).result
    assert type(pickle.loads(pickled)) is cupy.RawKernel
    assert pickle.loads(pickled).name == "halve"


def test_kernels_can_be_copied():
    assert watched(lambda: copy.deepcopy(cupy.RawKernel(SOURCE, "halve")).name).result == "halve"


def test_all_hooks_are_removed():
    owners = (cupy, cupy.ndarray, cupy.cuda, cupy.cuda.Stream, cupy.cuda.Event, cupy.cuda.runtime, cupy.cuda.compiler)
    before = [dict(vars(owner)) for owner in owners]
    watched(lambda: cupy.asarray([1.0]))
    assert [dict(vars(owner)) for owner in owners] == before


def test_objects_of_an_ended_session_record_nothing():
    kernel, device = watched(lambda: (cupy.RawKernel(SOURCE, "halve"), cupy.cuda.Device(0))).result
    silent = watched(lambda: (kernel((1,), (1,), ()), device.synchronize()))
    assert silent.of("run") == silent.of("sync") == []


def test_a_script_without_a_loop_has_a_list_of_its_crossings():
    data = np.ones((64, 64), np.float32)

    def run():
        array = cupy.asarray(data)
        array.set(data)
        cupy.cuda.Device(0).synchronize()
        if array.sum():
            float(array.sum())
        return cupy.asnumpy(array)

    assert_listed(
        run,
        [
            ("array = cupy.asarray(data)", "cupy.asarray", "upload", "explicit"),
            ("array.set(data)", "cupy.ndarray.set", "upload", "explicit"),
            ("cupy.cuda.Device(0).synchronize()", "cupy.cuda.Device.synchronize", "sync", "explicit"),
            ("if array.sum():", "bool(array)", "download", "implied"),
            ("float(array.sum())", "float(array)", "download", "explicit"),
            ("return cupy.asnumpy(array)", "cupy.asnumpy", "download", "explicit"),
        ],
    )
