"""A stand-in for CuPy without a GPU, with the functions that the tests of the doctor use. NumPy holds the arrays.

NumPy also computes each operation at once. Only the time imitates a queue: a call that reads a value waits as if the
device still had to run the operations. As in CuPy, NumPy cannot read an array's values without an explicit call.
"""

import numpy as np

from cupy import cuda
from cupy._core import ElementwiseKernel, RawKernel, RawModule, ReductionKernel, ndarray_base, numpy_values_of

__all__ = ["ElementwiseKernel", "RawKernel", "RawModule", "ReductionKernel", "array", "asanyarray", "asarray"]
__all__ += ["ascontiguousarray", "asnumpy", "cuda", "get_default_memory_pool", "isnan", "ndarray", "ones", "stack"]
__all__ += ["tanh", "zeros"]

__version__ = "14.0"

float32, int64 = np.float32, np.int64


class ndarray(ndarray_base):  # noqa: N801
    """A Python class, so that hooks can replace its methods. In CuPy, the base class is written in Cython."""


def array(obj, dtype=None, copy=True):
    return _to_array(obj, dtype)


def asarray(a, dtype=None):
    return _convert(a, dtype)


def asanyarray(a, dtype=None):
    return _convert(a, dtype)


def ascontiguousarray(a, dtype=None):
    return _convert(a, dtype)


def _convert(a, dtype):
    return a if isinstance(a, ndarray) and dtype is None else _to_array(a, dtype)


def _to_array(obj, dtype):
    """Make an array. The public functions call this function and not each other, as in CuPy."""
    if isinstance(obj, list) and isinstance(obj[0], ndarray):
        return stack(obj)
    return ndarray(np.array(numpy_values_of(obj), dtype))


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    return a.get(stream=stream, order=order, out=out) if isinstance(a, ndarray) else np.asarray(a)


def ones(shape, dtype=float):
    return ndarray(np.ones(shape, dtype))


def zeros(shape, dtype=float):
    return ndarray(np.zeros(shape, dtype))


def stack(arrays):
    return ndarray(np.stack([numpy_values_of(each) for each in arrays]))


def isnan(a):
    return ndarray(np.isnan(numpy_values_of(a)))


def tanh(a):
    return ndarray(np.tanh(numpy_values_of(a)))


class _MemoryPool:
    def used_bytes(self):
        return 0


_pool = _MemoryPool()


def get_default_memory_pool():
    return _pool
