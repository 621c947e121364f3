"""`ArrayOps`: the array operations of a framework that pixel functions use, and `NumpyArrayOps`.

A pixel function computes the pixels of an augmentation with only these methods and the operators of arrays. So the same
function runs on the host and on a device. The results differ only by rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = ["ArrayOps", "ArrayOpsProvider", "NumpyArrayOps"]


class ArrayOps(Protocol):
    """Operations on the arrays of one framework. The first axis counts rows."""

    def dtype_name(self, array: Any) -> str:
        """Return the name of the dtype in NumPy, such as "uint8"."""
        ...

    def upload(self, array: Any, like: Any) -> Any:
        """Return a NumPy array of 32-bit numbers as an array on the device of `like`."""
        ...

    def to_float(self, array: Any) -> Any:
        """Convert to float32."""
        ...

    def to_integer(self, array: Any) -> Any:
        """Convert to an integer type of at least 32 bits, for exact arithmetic."""
        ...

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Convert to `dtype`, or to the narrower dtype that the framework uses instead."""
        ...

    def gather(self, array: Any, indices: Any, axis: int) -> Any:
        """Return for each row its elements at `indices[row]` along `axis`.

        The array has 4 dimensions, and `axis` is 1 or 2.
        """
        ...

    def clip(self, array: Any, low: float, high: float | None = None) -> Any: ...
    def minimum(self, left: Any, right: Any) -> Any: ...
    def maximum(self, left: Any, right: Any) -> Any: ...
    def floor(self, array: Any) -> Any: ...
    def where(self, condition: Any, left: Any, right: Any) -> Any: ...
    def flip(self, array: Any, axis: int) -> Any: ...
    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """Join arrays along their last axis."""
        ...

    def mean(self, array: Any) -> Any:
        """Return the mean of each row of a 4-dimensional array, as (rows, 1, 1, 1)."""
        ...

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with the same results. It may be faster or record no gradients."""
        ...


@runtime_checkable
class ArrayOpsProvider(Protocol):
    """A device hand-off with array operations. Without them, pixel functions run on the host."""

    def array_ops(self) -> ArrayOps: ...


class NumpyArrayOps:
    """Array operations of NumPy, and of CuPy, which has the same functions."""

    def __init__(self, module: Any = np) -> None:
        self._module = module

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def upload(self, array: Any, like: Any) -> Any:
        return self._module.asarray(array)

    def to_float(self, array: Any) -> Any:
        return array.astype(np.float32)

    def to_integer(self, array: Any) -> Any:
        return array.astype(np.int64)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(dtype, copy=False)

    def gather(self, array: Any, indices: Any, axis: int) -> Any:
        rows = self._module.arange(array.shape[0])
        if axis == 1:
            return array[rows[:, None], indices]
        return array[rows[:, None, None], self._module.arange(array.shape[1])[:, None], indices[:, None]]

    def clip(self, array: Any, low: float, high: float | None = None) -> Any:
        return self._module.clip(array, low, high)

    def minimum(self, left: Any, right: Any) -> Any:
        return self._module.minimum(left, right)

    def maximum(self, left: Any, right: Any) -> Any:
        return self._module.maximum(left, right)

    def floor(self, array: Any) -> Any:
        return self._module.floor(array)

    def where(self, condition: Any, left: Any, right: Any) -> Any:
        return self._module.where(condition, left, right)

    def flip(self, array: Any, axis: int) -> Any:
        return self._module.flip(array, axis)

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return self._module.concatenate(arrays, axis=-1)

    def mean(self, array: Any) -> Any:
        return array.mean(axis=(1, 2, 3), keepdims=True)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function
