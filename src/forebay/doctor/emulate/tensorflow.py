"""TensorFlow: which of its calls upload, read or give batches, and how each is made otherwise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op, ops

from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, element_of, nbytes_of
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Way

__all__ = ["install", "wait"]

_READS = (
    *("numpy", "_numpy", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__array__"),
    *("__format__", "__repr__", "__str__"),
)
_FIRST_INPUT = 3  # of an operation's arguments: the context, its name and its label come before

Function = Callable[..., Any]  # of TensorFlow's
Make = Callable[[Emulator, Function], Function]


def install(emulator: Emulator) -> None:
    for owner, name, make in _CALLS.get(emulator.way, ()):
        emulator.patches.replace(owner, name, partial(make, emulator), api=name)


def wait() -> None:
    """Where it is used at all: to ask is to take the device."""
    if context.context()._initialized:
        tf.test.experimental.sync_devices()


def _taking(end: Callable[[], Any], emulator: Emulator, take: Function) -> Function:
    def hook(iterator: Any) -> Any:
        if not context.executing_eagerly():
            return take(iterator)
        length, owner = partial(_length, iterator._dataset), id(iterator._dataset)
        return emulator.batches.instead(lambda: _placed(take(iterator)), iterator, owner, length=length, end=end)

    return hook


def _length(dataset: Any) -> int | None:
    count = int(dataset.cardinality())
    return count if count > 0 else None  # it does not end, or does not know


def _placed(batch: Any) -> Any:
    """On the GPU, where there is one: that is where the next line wants it."""
    if not tf.config.list_logical_devices("GPU"):
        return batch
    with tf.device("GPU:0"):
        return tf.nest.map_structure(lambda each: each if each.dtype == tf.string else tf.identity(each), batch)


def _out_of_range() -> Any:
    return tf.errors.OutOfRangeError(None, None, "End of sequence")


def _converting(emulator: Emulator, convert: Function) -> Function:
    """Where all conversions of arrays and lists end."""

    def hook(value: Any, ctx: Any, dtype: Any = None) -> Any:
        again = partial(convert, value, ctx, dtype)
        if not isinstance(value, np.ndarray | list | tuple):
            return again()
        return emulator.uploads.instead(again, value, ctx.device_name, dtype, keep=_is_data)

    return hook


def _preparing(emulator: Emulator, convert: Function) -> Function:
    """The same for arrays that are narrowed before, or on their way a step ahead."""

    def hook(value: Any, ctx: Any, dtype: Any = None) -> Any:
        if type(value) is not np.ndarray:
            return convert(value, ctx, dtype)
        value = emulator.substitutes.instead(value, _narrow)
        return emulator.ahead.instead(partial(convert, value, ctx, dtype), value, _begin)

    return hook


def _narrow(data: Any) -> Any:
    return data.astype("float32") if data.dtype == "float64" else data


def _begin(convert: Function) -> Function:
    """It is on its way by itself, and whatever computes on it waits for it."""
    tensor = convert()
    return lambda: tensor


def _is_data(tensor: Any) -> bool:
    """Not an axis, an index or a shape, which may differ from the next one of its kind."""
    return not element_of(tensor._datatype_enum()).counts_with(nbytes_of(tensor))


def _running(emulator: Emulator, run: Function) -> Function:
    """Operations that are given arrays, which they would convert themselves."""

    def there(value: Any, ctx: Any) -> Any:
        if type(value) is not np.ndarray or not emulator.uploads.are_meant(value):
            return value
        again = partial(EagerTensor, value, ctx.device_name, None)
        return emulator.uploads.instead(again, value, ctx.device_name, keep=_is_data)

    def hook(*args: Any) -> Any:
        if np.ndarray not in {*map(type, args)}:
            return run(*args)
        return run(*args[:_FIRST_INPUT], *(there(value, args[0]) for value in args[_FIRST_INPUT:]))

    return hook


def _reading(name: str, emulator: Emulator, read: Function) -> Function:
    def hook(tensor: Any, *asked: Any, **kwargs: Any) -> Any:
        return emulator.reads.instead(partial(read, tensor, *asked, **kwargs), name, tensor)

    return hook


class _NumPyFunction(StandIn):
    """A function of NumPy's that takes a tensor's memory as it lies, past all of the tensor's methods."""

    def __init__(self, name: str, emulator: Emulator, original: Any) -> None:
        super().__init__(original)
        self._name, self._emulator = name, emulator

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        again = partial(self._original, *args, **kwargs)
        if not args or type(args[0]) is not EagerTensor:
            return again()
        return self._emulator.reads.instead(again, self._name, args[0])


_UPLOADS: list[tuple[Any, str, Make]] = [
    (constant_op, "convert_to_eager_tensor", _converting),
    (pywrap_tfe, "TFE_Py_FastPathExecute", _running),
]
_CALLS: dict[Way, list[tuple[Any, str, Make]]] = {
    Way.RESIDENT: [
        (iterator_ops.OwnedIterator, "__next__", partial(_taking, StopIteration)),
        (iterator_ops.OwnedIterator, "get_next", partial(_taking, _out_of_range)),
        *_UPLOADS,
    ],
    Way.REMEMBER: _UPLOADS,
    Way.REUSE: _UPLOADS,
    Way.NARROW: [(constant_op, "convert_to_eager_tensor", _preparing)],
    Way.AHEAD: [(constant_op, "convert_to_eager_tensor", _preparing)],
    Way.DEFER: [
        *((ops._EagerTensorBase, name, partial(_reading, name)) for name in _READS),
        *((np, name, partial(_NumPyFunction, name)) for name in ("asarray", "array")),
    ],
}
