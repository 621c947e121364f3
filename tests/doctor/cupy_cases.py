"""What the ledger holds of scripts that use CuPy. Run by test_cupy_hooks, with a stand-in for CuPy."""

import copy
import pickle

import cupy
import numpy as np
import pytest
from tests.doctor.hook_scripts import bare_script, watched, watched_script

SCRIPTS = ("conversion_in_loop", "host_check", "many_small_copies", "read_back", "rebuilt", "repeated_upload")
SCRIPTS += ("wide_dtype",)
SOURCE = 'extern "C" __global__ void __launch_bounds__(256) halve(float* x) {}'


@pytest.mark.parametrize(
    ("script", "kind", "api", "times", "line"),
    [
        ("repeated_upload", "upload", "cupy.asarray", 60, "filtered = cupy.tanh(cupy.asarray(volume) * weight)"),
        ("conversion_in_loop", "upload", "cupy.array", 60, "batch = cupy.array(rows[number % 20 * 32 :][:32])"),
        ("read_back", "download", "float(array)", 60, "residuals.append(float(vector.mean()))"),
        ("rebuilt", "build", "cupy.ElementwiseKernel", 60, "double = cupy.ElementwiseKernel("),
        ("rebuilt", "compile", "cupy", 60, "values = double(values) % 1000.0"),
        ("rebuilt", "run", "cupy.ElementwiseKernel", 60, "values = double(values) % 1000.0"),
        ("host_check", "download", "cupy.asnumpy", 60, "if np.isnan(cupy.asnumpy(field)).any():"),
        ("wide_dtype", "upload", "cupy.asarray", 60, "batch = cupy.asarray(numbers.random((256, 512)))"),
        ("many_small_copies", "upload", "cupy.asarray", 960, "batch = cupy.stack([cupy.asarray(row) for row in "),
        ("many_small_copies", "sync", "cupy.cuda.Stream.synchronize", 60, "cupy.cuda.Stream.null.synchronize()"),
    ],
)
def test_a_fault_is_written_down_with_its_line(script, kind, api, times, line):
    seen = watched_script(f"cupy/{script}")
    assert [seen.text(event).startswith(line) for event in seen.of(kind, api)].count(True) == times


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", ["upload", "download", "build", "compile", "sync"])
def test_a_healthy_script_does_nothing_in_its_loop(script, kind):
    assert len(watched_script(f"cupy/{script}_healthy").of(kind)) <= 2


@pytest.mark.parametrize("script", [*SCRIPTS, *(f"{script}_healthy" for script in SCRIPTS)])
def test_a_watched_script_comes_to_the_same_result(script):
    assert watched_script(f"cupy/{script}").result == bare_script(f"cupy/{script}")


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


def test_the_same_data_has_the_same_key():
    assert len(set(watched_script("cupy/repeated_upload").details("upload", "key"))) == 1


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
