"""Arrays and kernels, which CuPy implements in Cython. A kernel is compiled at its first launch."""

import operator

import numpy as np

from cupy.cuda import compiler
from cupy.cuda.device import QUEUE, Device


class ndarray_base:  # noqa: N801
    """An array whose values are in NumPy. A read of the values waits for the simulated device."""

    def __init__(self, values):
        QUEUE.add_work()
        self._values = np.asarray(values)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    nbytes = property(lambda self: self._values.nbytes)
    ndim = property(lambda self: self._values.ndim)
    device = property(lambda self: Device(0))
    __cuda_array_interface__ = property(lambda self: {"shape": self.shape, "version": 3})

    def get(self, stream=None, order="C", out=None, blocking=True):
        return self._read().copy()

    def set(self, arr, stream=None):
        self._values[...] = arr

    def item(self):
        return self._read().item()

    def tolist(self):
        return self._read().tolist()

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __getitem__(self, index):
        return type(self)(self._values[index])

    def __float__(self):
        return float(self._read())

    def __int__(self):
        return int(self._read())

    def __complex__(self):
        return complex(self._read())

    def __bool__(self):
        return bool(self._read())

    def __repr__(self):
        return repr(self._read())

    def __str__(self):
        return str(self._read())

    def __format__(self, spec):
        return format(self._read().item() if self.ndim == 0 else self._read(), spec)

    def mean(self, axis=None):
        return type(self)(self._values.mean(axis))

    def sum(self, axis=None):
        return type(self)(self._values.sum(axis))

    def _read(self):
        QUEUE.wait()
        return self._values


def numpy_values_of(value):
    return value._values if isinstance(value, ndarray_base) else value


def _operator(name):
    return lambda self, other: type(self)(getattr(operator, name)(self._values, numpy_values_of(other)))


for _name in ("add", "sub", "mul", "mod", "matmul", "gt"):
    setattr(ndarray_base, f"__{_name}__", _operator(_name))


class _Kernel:
    def _compile_once(self):
        if not self.compiled:
            compiler._compile_module_with_cache(self.code)
        self.compiled = True


class RawKernel(_Kernel):
    def __init__(self, code, name, options=(), backend="nvrtc"):
        self.code, self.name, self.compiled = code, name, False

    def __call__(self, grid, block, args):
        self._compile_once()
        QUEUE.add_work()


class RawModule:
    def __init__(self, *, code, options=()):
        self.code = code

    def get_function(self, name):
        return RawKernel(self.code, name)


class ElementwiseKernel(_Kernel):
    """A kernel that returns its first argument doubled, whatever its code says."""

    def __init__(self, in_params, out_params, operation, name="kernel"):
        self.code, self.name, self.compiled = f"__global__ void {name}() {{ {operation} }}", name, False

    def __call__(self, *args):
        self._compile_once()
        return args[0] + args[0]


class ReductionKernel(_Kernel):
    """A kernel that returns the sum of its first argument, whatever its code says."""

    def __init__(self, in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name="reduce"):
        self.code, self.name, self.compiled = f"__global__ void {name}() {{ {map_expr} }}", name, False

    def __call__(self, *args):
        self._compile_once()
        return args[0].sum()
