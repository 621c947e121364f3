"""upload_once: one upload for each array, no stale copies, and no leaked memory."""

import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.adapters.upload import cuda, uploaders
from forebay.adapters.upload import upload_once as upload
from forebay.adapters.upload.upload_once import forget, upload_once
from forebay.core.progress_line import ProgressLine
from forebay.errors import DeviceError, FrameworkError, SpecError


class Tensor:
    """A fake tensor of a framework."""

    def __init__(self, array):
        self.content = array.copy()


class RecordingUploader:
    """An uploader that records its uploads."""

    def __init__(self):
        self.uploads = []
        self.error = None

    def upload(self, array):
        if self.error is not None:
            raise self.error
        self.uploads.append(array.copy())
        return Tensor(array)


@pytest.fixture
def recorder(monkeypatch):
    recording = RecordingUploader()
    monkeypatch.setattr(upload, "_uploader_for", lambda to, device: recording)
    return recording


@pytest.fixture
def array():
    zeros = np.zeros(10)
    yield zeros
    forget(zeros)


def test_the_array_is_read_only_while_it_is_cached(recorder, array):
    upload_once(array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    forget(array)
    array[0] = 1


def test_a_read_only_array_stays_read_only(recorder, array):
    array.flags.writeable = False
    upload_once(array)
    forget(array)
    assert not array.flags.writeable


def test_an_array_made_writable_by_hand_is_uploaded_again(recorder, array):
    upload_once(array)
    array.flags.writeable = True
    array[:] = 3
    assert (upload_once(array).content == 3).all()
    assert not array.flags.writeable
    forget(array)
    assert array.flags.writeable


def test_an_array_made_writable_by_hand_is_uploaded_again_to_every_device(recorder, array):
    upload_once(array, "torch")
    upload_once(array, "jax")
    array.flags.writeable = True
    array[:] = 3
    upload_once(array, "torch")
    assert (upload_once(array, "jax").content == 3).all()


def test_each_framework_and_device_has_its_own_tensor(recorder, array):
    found = {upload_once(array, to, device=device) for to in ("torch", "jax") for device in ("cpu", "cuda:0")}
    assert len(found) == len(recorder.uploads) == 4
    forget(array)
    assert array.flags.writeable


def test_forget_ignores_arrays_that_are_not_cached(array):
    forget(array)
    forget({"x": array, "y": 3})
    assert array.flags.writeable


def test_a_failed_upload_leaves_the_array_writable(recorder, array):
    recorder.error = MemoryError("no room")
    with pytest.raises(MemoryError, match="no room"):
        upload_once(array)
    assert array.flags.writeable
    assert id(array) not in upload._cache


def test_a_failed_upload_to_a_second_device_keeps_the_first(recorder, array):
    first = upload_once(array, "torch")
    recorder.error = MemoryError("no room")
    with pytest.raises(MemoryError):
        upload_once(array, "jax")
    assert upload_once(array, "torch") is first
    assert not array.flags.writeable


def test_a_tensor_is_released_with_its_array(recorder):
    array = np.zeros(10)
    tensor = weakref.ref(upload_once(array))
    assert tensor() is not None
    del array
    gc.collect()
    assert tensor() is None


def test_a_tensor_is_released_by_forget(recorder, array):
    tensor = weakref.ref(upload_once(array))
    forget(array)
    gc.collect()
    assert tensor() is None


def test_a_checked_tensor_is_released_before_the_next_upload(recorder, array):
    tensor = weakref.ref(upload_once(array, check="full"))
    array[:] = 1
    upload_once(array, check="full")
    gc.collect()
    assert tensor() is None


def test_a_full_check_notices_only_changes_inside_the_view(recorder):
    whole = np.zeros((40, 50), np.float32)
    view = whole[::3, 5:45]
    upload_once(view, check="full")
    whole[39, 44] = np.float32(1e-38)
    upload_once(view, check="full")
    assert len(recorder.uploads) == 2
    whole[39, 45] = 1  # not in the view
    upload_once(view, check="full")
    assert len(recorder.uploads) == 2


def test_locked_and_checked_copies_of_one_array_can_coexist(recorder, array):
    locked, checked = upload_once(array), upload_once(array, check="full")
    assert upload_once(array) is locked
    assert upload_once(array, check="full") is checked


def test_concurrent_calls_upload_once(recorder, array):
    start, found = threading.Barrier(8), []

    def upload_together():
        start.wait()
        found.append(upload_once(array))

    threads = [threading.Thread(target=upload_together) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(set(found)) == len(recorder.uploads) == 1


def test_a_view_of_an_array_that_other_code_can_change_is_refused_with_alternatives(recorder):
    whole = np.zeros(10)
    with pytest.raises(SpecError, match=r'view of a writable ndarray.*a copy.*check="full"'):
        upload_once(whole[:5])
    assert whole.flags.writeable


def test_a_read_only_view_of_an_array_that_other_code_can_change_is_refused(recorder):
    whole = np.zeros(10)
    view = np.broadcast_to(whole, (3, 10))
    with pytest.raises(SpecError, match="view of a writable ndarray"):
        upload_once(view)


def test_a_view_of_a_cached_array_is_refused(recorder, array):
    view = array[:5]
    upload_once(array)
    with pytest.raises(SpecError, match="view of a writable ndarray"):
        upload_once(view)
    assert view.flags.writeable


def test_a_view_of_a_buffer_that_other_code_can_change_is_refused(recorder):
    buffer = bytearray(64)
    with pytest.raises(SpecError, match="view of a writable memoryview"):
        upload_once(np.frombuffer(buffer, np.uint8))


def test_a_view_of_memory_of_another_library_is_refused(recorder):
    memory = np.zeros(4)
    view = np.asarray(SimpleNamespace(__array_interface__=memory.__array_interface__))
    with pytest.raises(SpecError, match="view of a writable SimpleNamespace that other code may change"):
        upload_once(view)


@pytest.mark.parametrize(
    "view",
    [np.zeros(10).reshape(2, 5), np.frombuffer(b"12345678", np.uint8), np.frombuffer(bytearray(8), np.uint8)],
    ids=["reshaped", "bytes", "bytearray"],
)
def test_a_view_of_private_memory_is_uploaded(recorder, view):
    assert np.array_equal(upload_once(view).content, view)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_mapped_file_is_uploaded(recorder, tmp_path, mode):
    np.save(tmp_path / "x.npy", np.arange(10))
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    assert np.array_equal(upload_once(mapped).content, np.arange(10))
    forget(mapped)
    assert mapped.flags.writeable == (mode == "r+")


def test_a_leaf_that_is_not_an_array_is_refused_with_its_name(recorder):
    with pytest.raises(SpecError, match=r"'rows' is a list.*np.asarray"):
        upload_once({"rows": [1, 2, 3]})


def test_a_masked_array_is_refused():
    with pytest.raises(SpecError, match="mask would be lost"):
        upload_once(np.ma.masked_array(np.zeros(3), mask=[True, False, False]), "numpy")


@pytest.mark.parametrize("array", [np.array([None, {}]), np.array(["a"], np.dtypes.StringDType())])
def test_arrays_of_python_objects_are_refused_also_for_numpy(array):
    with pytest.raises(SpecError, match="holds Python objects"):
        upload_once(array, "numpy")
    assert array.flags.writeable


def test_uploads_show_their_bytes(monkeypatch):
    texts = []

    def make_line(text, total=None):
        texts.append(text)
        return ProgressLine(text, total)

    monkeypatch.setattr(uploaders, "ProgressLine", make_line)
    monkeypatch.setattr(upload, "ProgressLine", make_line)
    monkeypatch.setattr(upload, "MIN_PROGRESS_NBYTES", 0)
    upload_once(np.zeros(1024), "numpy", check="full")
    assert texts == ["computing the checksum of 8.0 KiB", "copying 8.0 KiB"]


def test_an_upload_to_a_gpu_counts_queued_bytes(monkeypatch):
    monkeypatch.setattr(cuda, "UPLOAD_STEP_NBYTES", 4096)
    stream = SimpleNamespace(upload_pageable=lambda target, source, nbytes: done.append(line.done))
    line, done = ProgressLine("uploading", 16384), []
    memory = SimpleNamespace(pointer=0, stream=stream)
    cuda._queue_copies(memory, np.zeros(16384, np.uint8), None, line)
    assert done[0] == 0
    assert done == sorted(done)
    assert line.done == 16384


def test_an_unknown_check_is_refused_with_the_known_checks(array):
    with pytest.raises(SpecError, match=r"'fast'.*'lock', 'full'"):
        upload_once(array, "numpy", check="fast")


def test_an_unknown_framework_is_refused(array):
    with pytest.raises(FrameworkError, match=r"does not know 'pytorch'. Write upload_once\(array, to='torch'\)"):
        upload_once(array, "pytorch")
    with pytest.raises(FrameworkError, match=r"'flax': Forebay does not know this framework. Write upload_once\("):
        upload_once(array, "flax")
    assert array.flags.writeable


def test_a_framework_that_is_not_a_string_is_refused_with_its_name(array):
    with pytest.raises(FrameworkError, match=r"does not know <module 'numpy'.*Write upload_once\(array, to='numpy'\)"):
        upload_once(array, np)
    with pytest.raises(FrameworkError, match="arrays of None: Forebay does not know this framework"):
        upload_once(array, None)
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("installed", "advice"),
    [({"jax", "numpy"}, "Write upload_once(array, to='jax')."), (set(), "Run: pip install tensorflow.")],
)
def test_a_framework_that_is_not_installed_is_refused_with_one_that_is(array, monkeypatch, installed, advice):
    def load_hand_off(name):
        raise FrameworkError("cannot feed it", name=name) from ModuleNotFoundError(name=name)

    monkeypatch.setattr(upload.registry, "load_hand_off", load_hand_off)
    monkeypatch.setattr(upload, "find_spec", lambda name: name in installed or None)
    monkeypatch.setattr(upload, "sys", SimpleNamespace(modules={"jax": None} if installed else {}))
    with pytest.raises(FrameworkError) as caught:
        upload_once(array)
    words = "upload_once() cannot make arrays of 'tensorflow': tensorflow is not installed. "
    assert str(caught.value) == words + advice
    assert array.flags.writeable


def test_each_new_array_goes_to_the_default_device_of_that_moment(monkeypatch):
    devices = iter(["cuda:0", "cuda:1"])
    monkeypatch.setattr(upload, "_default_device", lambda to: next(devices))
    monkeypatch.setattr(upload, "resolve_target", lambda device, to: device)
    monkeypatch.setattr(upload, "_make_uploader", lambda device: SimpleNamespace(upload=lambda array: device))
    assert [upload_once(np.zeros(3), "recorder") for _ in range(2)] == ["cuda:0", "cuda:1"]


def test_a_full_check_finds_the_default_device_only_for_an_upload(array, monkeypatch):
    found = []
    monkeypatch.setattr(upload, "_default_device", lambda to: found.append(to) or "cpu")
    for _ in range(2):
        upload_once(array, "numpy", check="full")
    array[0] = 1
    upload_once(array, "numpy", check="full")
    assert found == ["numpy", "numpy"]


@pytest.mark.parametrize("device", ["cuda:99", "tpu"])
def test_a_missing_device_is_refused(array, device):
    with pytest.raises(DeviceError):
        upload_once(array, "numpy", device=device)
    assert array.flags.writeable
