"""Emulations for TensorFlow: hooks that replace uploads, read-backs and reads of batches."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op, ops

from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.hooks.tensorflow.reads import NUMPY_READS
from forebay.doctor.capture.hooks.tensorflow.settings import SWITCHES
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, element_type_of, nbytes_of
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.emulate.transfers import narrow
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

# Methods that read a value back to the host.
_READS = (
    *("numpy", "_numpy", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__array__"),
    *("__format__", "__repr__", "__str__"),
)
_FIRST_INPUT = 3  # index of the first input in TFE_Py_FastPathExecute(context, type, name, *inputs)

Function = Callable[..., Any]  # a function of TensorFlow
MakeHook = Callable[[Emulator, Function], Function]  # (emulator, original) -> hook


def install(emulator: Emulator) -> None:
    """Replace the calls that `_CALLS` lists for the kind of the emulation."""
    emulator.settings.disable(emulator.patches, SWITCHES)
    for owner, name, make_hook in _CALLS.get(emulator.kind, ()):
        emulator.patches.replace(owner, name, partial(make_hook, emulator), api=name)


def wait() -> None:
    """Wait for the devices, if TensorFlow has initialised them. `sync_devices` would initialise them."""
    if context.context()._initialized:
        tf.test.experimental.sync_devices()


def _replace_next(end: Callable[[], Any], emulator: Emulator, take_next: Function) -> Function:
    """Return a hook that repeats the first batch and raises `end()` after the last.

    See `ResidentBatches.next_batch`.
    """

    def hook(iterator: Any) -> Any:
        if not context.executing_eagerly():
            return take_next(iterator)
        length, owner = partial(_length_of, iterator._dataset), id(iterator._dataset)
        return emulator.batches.next_batch(
            lambda: _place_on_gpu(take_next(iterator)), iterator, owner, length=length, end=end
        )

    return hook


def _length_of(dataset: Any) -> int | None:
    """Return the number of batches; None if it is infinite or unknown."""
    count = int(dataset.cardinality())
    return count if count > 0 else None


def _place_on_gpu(batch: Any) -> Any:
    """Return a copy of the batch on the first GPU; without a GPU, the batch.

    Strings stay where they are, because a GPU cannot hold them.
    """
    if not tf.config.list_logical_devices("GPU"):
        return batch
    with tf.device("GPU:0"):
        return tf.nest.map_structure(lambda tensor: tensor if tensor.dtype == tf.string else tf.identity(tensor), batch)


def _out_of_range() -> Any:
    """Return the error that `get_next` raises at the end of a dataset."""
    return tf.errors.OutOfRangeError(None, None, "End of sequence")


def _reuse_conversion(emulator: Emulator, convert: Function) -> Function:
    """Return a hook that reuses the result of an earlier conversion.

    TensorFlow converts all arrays and lists with `convert_to_eager_tensor`, which this hook replaces.
    """

    def hook(value: Any, ctx: Any, dtype: Any = None) -> Any:
        run_original = partial(convert, value, ctx, dtype)
        if not isinstance(value, np.ndarray | list | tuple):
            return run_original()
        return emulator.uploads.upload(run_original, value, ctx.device_name, dtype, is_reusable=_is_data)

    return hook


def _prepare_or_prefetch(emulator: Emulator, convert: Function) -> Function:
    """Return a hook that narrows data before uploads, or starts uploads one step early.

    Similar data is narrowed once; see `PreparedUploads`.
    """

    def hook(value: Any, ctx: Any, dtype: Any = None) -> Any:
        if type(value) is not np.ndarray:
            return convert(value, ctx, dtype)
        value = emulator.prepared.substitute(value, narrow)
        return emulator.prefetch.upload(partial(convert, value, ctx, dtype), value, _start_upload)

    return hook


def _start_upload(convert: Function) -> Function:
    """Start an upload; return a function that returns the tensor.

    TensorFlow uploads asynchronously. A computation on the tensor waits for the upload.
    """
    tensor = convert()
    return lambda: tensor


def _is_data(tensor: Any) -> bool:
    """Whether the tensor holds training data.

    Small integers may be an axis, an index or a shape, which the emulation must not replace by an earlier value.
    """
    return not element_type_of(tensor._datatype_enum()).is_bookkeeping(nbytes_of(tensor))


def _reuse_operation_inputs(emulator: Emulator, run: Function) -> Function:
    """Return a hook for operations that replaces their NumPy inputs by uploaded tensors."""

    def replace_input(value: Any, ctx: Any) -> Any:
        if type(value) is not np.ndarray or not emulator.uploads.should_replace(value):
            return value
        run_original = partial(EagerTensor, value, ctx.device_name, None)
        return emulator.uploads.upload(run_original, value, ctx.device_name, is_reusable=_is_data)

    def hook(*args: Any) -> Any:
        if np.ndarray not in {*map(type, args)}:
            return run(*args)
        return run(*args[:_FIRST_INPUT], *(replace_input(value, args[0]) for value in args[_FIRST_INPUT:]))

    return hook


def _skip_read(name: str, emulator: Emulator, read: Function) -> Function:
    """Return a hook that skips most read-backs; see `SkippedReads.read`."""

    def hook(tensor: Any, *options: Any, **kwargs: Any) -> Any:
        return emulator.reads.read(partial(read, tensor, *options, **kwargs), name, tensor)

    return hook


class _EmulatedNumPyRead(FunctionProxy):
    """Replaces a NumPy function, such as `np.asarray`, that reads a tensor without calling its methods."""

    def __init__(self, name: str, emulator: Emulator, original: Any) -> None:
        super().__init__(original)
        self._name, self._emulator = name, emulator

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        run_original = partial(self._original, *args, **kwargs)
        if not args or type(args[0]) is not EagerTensor:
            return run_original()
        # The same line may call a function with other options, such as another axis; its result is another array.
        return self._emulator.reads.read(run_original, f"{self._name}{args[1:]}{kwargs}", args[0])


# Owner, name and hook of each call to replace.
_UPLOADS: list[tuple[Any, str, MakeHook]] = [
    (constant_op, "convert_to_eager_tensor", _reuse_conversion),
    (pywrap_tfe, "TFE_Py_FastPathExecute", _reuse_operation_inputs),
]
_CALLS: dict[EmulationKind, list[tuple[Any, str, MakeHook]]] = {
    EmulationKind.RESIDENT: [
        (iterator_ops.OwnedIterator, "__next__", partial(_replace_next, StopIteration)),
        (iterator_ops.OwnedIterator, "get_next", partial(_replace_next, _out_of_range)),
        *_UPLOADS,
    ],
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.NARROW: [(constant_op, "convert_to_eager_tensor", _prepare_or_prefetch)],
    EmulationKind.PREFETCH: [(constant_op, "convert_to_eager_tensor", _prepare_or_prefetch)],
    EmulationKind.DEFER: [
        *((ops._EagerTensorBase, name, partial(_skip_read, name)) for name in _READS),
        *((np, name, partial(_EmulatedNumPyRead, name)) for name in NUMPY_READS),
    ],
}
