"""Read-back cases that every framework must pass.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process. tests/gpu/test_readback.py runs this file again on a GPU.
"""

import gc
import importlib
import os
from functools import partial

import numpy as np
import pytest

from forebay.adapters.readback.readback import Readback, all_finite
from forebay.errors import SpecError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
NAN, INF = float("nan"), float("inf")

only_for = {
    name: pytest.mark.skipif(name != FRAMEWORK, reason=f"only for {name}")
    for name in ("torch", "jax", "tensorflow", "cupy")
}


@pytest.fixture(scope="module")
def framework():
    return importlib.import_module(FRAMEWORK)


def make(array):
    """Make an array of the framework on its default device."""
    array = np.array(array)  # a copy, because JAX may use the memory of its argument
    framework = importlib.import_module(FRAMEWORK)
    if FRAMEWORK == "torch":
        return framework.tensor(array, device="cuda" if framework.cuda.is_available() else "cpu")
    if FRAMEWORK == "tensorflow":
        return framework.identity(framework.constant(array))
    return framework.device_put(array) if FRAMEWORK == "jax" else framework.asarray(array)


def make_empty():
    return make(np.zeros((0, 3), np.float32))


def add_one_in_place(framework, tensor):
    """Change the memory of an array. With JAX, donate the array to a function."""
    if FRAMEWORK == "tensorflow":
        tensor.assign_add(framework.ones_like(tensor))
    elif FRAMEWORK == "jax":
        framework.jit(lambda x: x + 1, donate_argnums=0)(tensor).block_until_ready()
    else:
        tensor += 1


def make_mutable(framework, array):
    """Make an array that `add_one_in_place` can change."""
    return framework.Variable(array) if FRAMEWORK == "tensorflow" else make(array)


def as_bfloat16(framework, tensor):
    if FRAMEWORK == "torch":
        return tensor.to(framework.bfloat16)
    return framework.cast(tensor, "bfloat16") if FRAMEWORK == "tensorflow" else tensor.astype("bfloat16")


def read(tree):
    with Readback() as readback:
        readback.put(tree)
    return readback.drain()[0].value


def is_finite(*leaves):
    """Return the result of all_finite through a Readback."""
    return bool(read(all_finite(leaves)))


def test_results_come_back_in_order_with_their_tags():
    with Readback(limit=4) as readback:
        found = []
        for step in range(50):
            readback.put(make(np.full(3, step, np.float32)), tag=step)
            found += readback.ready()
        found += readback.drain()
    assert [result.tag for result in found] == list(range(50))
    assert [result.value.tolist() for result in found] == [[step] * 3 for step in range(50)]


def test_trees_keep_their_structure_and_arrays_are_new():
    found = read({"loss": make(np.float32(0.5)), "pair": (make([1, 2]), [make([3.0])], 7, np.arange(2))})
    assert type(found["loss"]) is np.ndarray
    assert found["loss"] == np.float32(0.5)
    assert found["pair"][0].tolist() == [1, 2]
    assert found["pair"][1][0].tolist() == [3.0]
    assert found["pair"][2] == 7
    assert found["pair"][3].tolist() == [0, 1]
    found["pair"][0][0] = 9  # the array is writable


def test_results_have_the_values_at_the_call_of_put(framework):
    tensor = make_mutable(framework, np.arange(100_000, dtype=np.float32))
    with Readback() as readback:
        readback.put(tensor)
        add_one_in_place(framework, tensor)
    assert np.array_equal(readback.drain()[0].value, np.arange(100_000))


def test_results_outlive_the_arrays_that_were_put():
    with Readback() as readback:
        for step in range(20):
            readback.put(make(np.full(1000, step, np.float32)))
            gc.collect()
    assert [float(result.value.mean()) for result in readback.drain()] == list(range(20))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4", "c8"])
def test_dtypes_are_unchanged(dtype):
    array = np.arange(6).astype(dtype)
    found = read(make(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


@pytest.mark.parametrize("array", [np.float32(3), np.zeros((0, 3), np.float32), np.ones((2, 3, 4), np.float32)])
def test_shapes_are_unchanged(array):
    found = read(make(array))
    assert found.shape == array.shape
    assert np.array_equal(found, array)


@only_for["torch"]
def test_views_gradients_and_lazy_values_come_back_resolved(framework):
    weights = framework.nn.Parameter(make(np.arange(6, dtype=np.float32)).reshape(2, 3))
    found = read({"T": weights.T, "parameter": weights, "conjugate": make(np.array([1 + 2j], np.complex64)).conj()})
    assert np.array_equal(found["T"], np.arange(6).reshape(2, 3).T)
    assert np.array_equal(found["parameter"], np.arange(6).reshape(2, 3))
    assert found["conjugate"] == np.complex64(1 - 2j)


@only_for["torch"]
def test_bfloat16_comes_back_as_float32(framework):
    found = read(as_bfloat16(framework, make([1.5, -2.0])))
    assert found.dtype == np.float32
    assert found.tolist() == [1.5, -2.0]


@only_for["torch"]
def test_results_come_back_from_an_amd_gpu_through_pytorch(framework, monkeypatch):
    monkeypatch.setattr(framework.version, "hip", "6.4")
    tensor_type = type("TensorOnAmdGpu", (framework.Tensor,), {"is_cuda": True})
    assert read(framework.tensor([1.0, 2.0]).as_subclass(tensor_type)).tolist() == [1.0, 2.0]


@pytest.mark.skipif(FRAMEWORK not in ("jax", "tensorflow"), reason="only JAX and TensorFlow add bfloat16 to NumPy")
def test_bfloat16_comes_back_in_the_frameworks_numpy_dtype(framework):
    found = read(as_bfloat16(framework, make([1.5, -2.0])))
    assert found.dtype.name == "bfloat16"
    assert found.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.skipif(FRAMEWORK not in ("jax", "tensorflow"), reason="only JAX and TensorFlow trace functions")
def test_values_inside_a_traced_function_are_refused(framework):
    trace = framework.jit if FRAMEWORK == "jax" else partial(framework.function, autograph=False)
    with pytest.raises(SpecError, match="Return it from the function"):
        trace(lambda x: Readback().put(x))(make(1.0))


@pytest.mark.skipif(FRAMEWORK not in ("jax", "tensorflow"), reason="only JAX and TensorFlow trace functions")
@pytest.mark.parametrize(("value", "finite"), [(1.0, True), (NAN, False)])
def test_finiteness_is_checked_inside_a_traced_function(framework, value, finite):
    trace = framework.jit if FRAMEWORK == "jax" else framework.function
    assert bool(read(trace(all_finite)({"x": make([value, 1.0])}))) == finite


def test_all_finite_returns_one_boolean_of_the_framework():
    answer = all_finite([make([1.0]), make([2.0])])
    assert type(answer) is type(make([1.0]))
    assert tuple(answer.shape) == ()
    assert "bool" in str(answer.dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [0, 500, 1000])
def test_a_single_bad_value_is_found_at_any_position(dtype, value, place):
    array = np.ones(1001, dtype)
    good = make(array)
    array[place] = value
    assert is_finite(good, good)
    assert not is_finite(good, make(array))


def test_an_imaginary_infinity_is_found():
    assert not is_finite(make(np.array([complex(1, INF)], np.complex64)))


def test_the_largest_numbers_of_each_dtype_are_finite():
    largest = [make(np.array([np.finfo(dtype).max, np.finfo(dtype).min], dtype)) for dtype in ("f2", "f4")]
    assert is_finite(*largest)
    assert is_finite(make(np.array([1e300 if FRAMEWORK != "jax" else 1e30])), *largest)


def test_integers_booleans_and_empty_arrays_are_finite():
    assert is_finite(make([1, 2]), make([True]), make_empty())
    assert is_finite(make([1, 2]))
    assert is_finite(make_empty())
    assert is_finite(make([1.0]), None)


def test_missing_gradients_are_ignored():
    assert not is_finite(None, make([NAN]), None)


def test_a_generator_of_arrays_is_accepted():
    assert not bool(read(all_finite(make([value]) for value in (1.0, NAN))))


@pytest.mark.skipif(FRAMEWORK == "cupy", reason="CuPy has no bfloat16")
def test_all_finite_checks_bfloat16(framework):
    assert is_finite(as_bfloat16(framework, make([1.0, 2.0])))
    assert not is_finite(as_bfloat16(framework, make([1.0, NAN])))


@only_for["torch"]
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # some versions warn even if the check was requested
def test_all_finite_checks_sparse_gradients_and_float8_of_torch(framework):
    assert not is_finite(framework.sparse_coo_tensor([[0, 2]], [1.0, NAN], (4,), check_invariants=True))
    assert is_finite(framework.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), check_invariants=True))
    assert not is_finite(make([1.0, NAN]).to(framework.float8_e5m2))


@only_for["tensorflow"]
def test_sparse_gradients_of_tensorflow_are_checked(framework):
    assert not is_finite(framework.IndexedSlices(make([[1.0], [NAN]]), framework.constant([0, 2])))
    assert is_finite(framework.IndexedSlices(make([[1.0], [2.0]]), framework.constant([0, 2])))


@only_for["tensorflow"]
def test_sparse_tensors_of_tensorflow_come_back_dense_and_are_checked(framework):
    sparse = framework.sparse.from_dense([[0.0, NAN]])
    with Readback() as readback:
        readback.put(sparse)
        assert np.array_equal(readback.drain()[0].value, [[0.0, NAN]], equal_nan=True)
    assert not is_finite(sparse)


@only_for["tensorflow"]
def test_ragged_tensors_are_refused(framework):
    with pytest.raises(SpecError, match=r"to_tensor\(\)"):
        Readback().put(framework.ragged.constant([[1.0], [2.0, 3.0]]))


@only_for["torch"]
def test_a_model_is_refused(framework):
    with pytest.raises(SpecError, match="a Linear is not an array"):
        all_finite(framework.nn.Linear(1, 1))


def test_arrays_of_two_frameworks_are_refused():
    with pytest.raises(SpecError, match=r"Call all_finite once for each"):
        all_finite([make([1.0]), np.ones(3)])
