"""upload_once cases that every framework must pass.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process. tests/gpu/test_upload.py runs this file again on a GPU.
"""

import gc
import importlib
import os

import numpy as np
import pytest

from forebay.adapters.upload.upload_once import _cache, forget, upload_once
from forebay.errors import SpecError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
KINDS = {"torch": "Tensor", "tensorflow": "EagerTensor", "jax": "ArrayImpl", "cupy": "ndarray"}


@pytest.fixture(scope="module")
def framework():
    return importlib.import_module(FRAMEWORK)


@pytest.fixture
def data():
    made = np.random.default_rng(0).random((100, 7)).astype(np.float32)
    yield made
    forget(made)


def to_numpy(tensor):
    """Return the content of a tensor on any device."""
    if FRAMEWORK == "torch":
        return tensor.cpu().numpy()
    return tensor.get() if FRAMEWORK == "cupy" else np.asarray(tensor)


def mean_of(framework, tensor):
    if FRAMEWORK == "tensorflow":
        return float(framework.reduce_mean(tensor))
    return float(tensor.mean())


def test_the_tensor_is_of_the_framework_with_the_same_content(data):
    tensor = upload_once(data, FRAMEWORK)
    assert type(tensor).__name__ == KINDS[FRAMEWORK]
    assert np.array_equal(to_numpy(tensor), data)


def test_every_call_returns_the_same_tensor(data):
    first = upload_once(data, FRAMEWORK)
    assert all(upload_once(data, FRAMEWORK) is first for _ in range(10))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4", "c8", ">f4", ">i2"])
def test_dtypes_are_unchanged_in_native_byte_order(dtype):
    array = np.arange(6).astype(dtype)
    found = to_numpy(upload_once(array, FRAMEWORK))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array)


@pytest.mark.parametrize("dtype", ["i8", "f8"])
def test_64_bit_types_arrive_in_the_frameworks_dtype(dtype):
    array = np.arange(6).astype(dtype)
    found = to_numpy(upload_once(array, FRAMEWORK))
    assert found.dtype.itemsize == (4 if FRAMEWORK == "jax" else 8)
    assert np.array_equal(found, array)


@pytest.mark.parametrize(
    "array",
    [np.full((), 3, np.float32), np.zeros((0, 3), np.float32), np.ones((3, 4), np.float32).T, np.arange(20)[::3]],
    ids=["scalar", "empty", "transposed", "strided"],
)
def test_shapes_and_strides_of_all_kinds_arrive(array):
    found = to_numpy(upload_once(array, FRAMEWORK))
    assert found.shape == array.shape
    assert np.array_equal(found, array)


def test_an_unaligned_array_arrives():
    whole = np.arange(1001, dtype=np.uint8)
    view = whole[1:]
    del whole
    assert np.array_equal(to_numpy(upload_once(view, FRAMEWORK)), np.arange(1, 1001, dtype=np.uint8))


def test_a_tree_becomes_a_tree_of_tensors(data):
    tree = {"x": data, "pair": (np.arange(3), [np.ones(2, np.float32)])}
    found = upload_once(tree, FRAMEWORK)
    assert np.array_equal(to_numpy(found["x"]), data)
    assert np.array_equal(to_numpy(found["pair"][0]), [0, 1, 2])
    assert isinstance(found["pair"][1], list)
    assert upload_once(tree, FRAMEWORK)["x"] is found["x"]
    forget(tree)


def test_a_changed_array_is_uploaded_again_after_forget(data):
    upload_once(data, FRAMEWORK)
    forget(data)
    data[:] = 5
    assert (to_numpy(upload_once(data, FRAMEWORK)) == 5).all()


def test_the_tensor_outlives_the_array():
    array = np.full(1000, 7, np.float32)
    tensor = upload_once(array, FRAMEWORK)
    del array
    gc.collect()
    assert (to_numpy(tensor) == 7).all()


def test_collected_arrays_are_not_cached():
    before = len(_cache)
    found = [float(to_numpy(upload_once(np.full(10, i, np.float32), FRAMEWORK))[0]) for i in range(200)]
    assert found == list(range(200))
    assert len(_cache) == before


def test_the_tensor_is_not_the_array_itself():
    array = np.zeros(64, np.float32)
    tensor = upload_once(array, FRAMEWORK, check="full")
    array[:] = 1
    assert (to_numpy(tensor) == 0).all()


def test_a_full_check_uploads_a_changed_array_again():
    array = np.zeros((30, 30), np.float32)
    first = upload_once(array, FRAMEWORK, check="full")
    assert upload_once(array, FRAMEWORK, check="full") is first
    array[3, 4] = 1
    assert to_numpy(upload_once(array, FRAMEWORK, check="full"))[3, 4] == 1
    assert array.flags.writeable


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([None, {}]), np.arange(3).astype("M8[s]")])
@pytest.mark.parametrize("check", ["lock", "full"])
def test_unsupported_dtypes_are_refused_and_the_array_stays_writable(array, check):
    with pytest.raises(SpecError):
        upload_once(array, FRAMEWORK, check=check)
    assert array.flags.writeable


def test_a_loop_that_converts_at_every_step_converts_once(framework):
    array = np.random.default_rng(0).random((1000, 1000, 3)).astype(np.float32)
    tensors = [upload_once(array, FRAMEWORK) for _ in range(20)]
    assert all(tensor is tensors[0] for tensor in tensors)
    assert float(mean_of(framework, tensors[-1])) == pytest.approx(float(array.mean()), rel=1e-4)
