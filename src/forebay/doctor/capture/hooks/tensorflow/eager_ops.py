"""Hooks for eager operations of TensorFlow, and for the transfers that they cause.

The hooks count the operations of each line of the script.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute

from forebay.doctor.capture.hooks.op_counter import OpCounter, ThreadOps
from forebay.doctor.capture.hooks.tensorflow.input_waits import InputWaits
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor
from forebay.doctor.capture.hooks.tensorflow.transfers import Transfers
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "EagerOps", "hook_operations"]

API = "tf operations"
# An operation is plain if it causes no transfer. Inputs of these types need no upload. If TensorFlow has a device
# besides the CPU, the hook also checks whether the tensors are on different devices.
_PLAIN_TYPES = frozenset({EagerTensor, str, int, float, bool, bytes, type(None), tuple})
SMALL_ELEMENTS = 1024  # numbers in a small tensor; a kernel needs about 1 us for so many, and a call tens of us
MIN_PLAIN_CALLS = 16  # after this many consecutive calls without a transfer, an operation counts as plain
# Prefixes of names of compiled functions, which are not eager operations.
_COMPILED_PREFIXES = ("__inference_", "__forward_", "__backward_")


class EagerOps:
    """Counts operations, and records the transfers that they cause."""

    def __init__(self, patches: Patches, waits: InputWaits) -> None:
        self.ledger = patches.ledger
        self.counter = OpCounter(patches.ledger, API)
        self.plain_ops: set[str] = set()  # names of plain operations
        self._waits = waits
        self._transfers = Transfers(patches, API)
        self._plain_calls: Counter[str] = Counter()  # operation -> consecutive calls without a transfer
        self._several_devices: bool | None = None  # whether there is a device besides the CPU; None: not checked yet

    def on_operation(self, ops: ThreadOps, name: str, inputs: Any, result: Any, start: int, end: int) -> None:
        """Sample the operation if a sample is due, and record its transfers in any case.

        A transfer is not recorded if no line of the script is on the stack.
        """
        may_upload = not _PLAIN_TYPES.issuperset(map(type, inputs))
        may_move = self._has_several_devices() and (
            list in map(type, inputs) or _are_on_several_devices(inputs, result)
        )
        self._classify(name, is_plain=not may_upload and not may_move)
        if ops.ops_until_sample:
            ops.skip_op(end)
            line = self.ledger.lines.current_line(1) if may_upload or may_move else -1
        else:
            self._waits.stop_trace_if_due(start)
            line = self.counter.sample(ops, start, end, is_small=_are_small(inputs, result))
        if line < 0:
            return
        if may_upload:
            for array in _inputs_of_type(inputs, np.ndarray):
                self._transfers.record_array(name, array, result, line, start, end)
        if may_move:
            self._transfers.record_moves(name, _inputs_of_type(inputs, EagerTensor), result, line, start, end)

    def _classify(self, name: str, *, is_plain: bool) -> None:
        """Add an operation to `plain_ops`, or remove it.

        For most calls of a plain operation, the hook only counts the call. It examines every call of other operations,
        so that it misses none of their transfers.
        """
        if not is_plain:
            self._plain_calls[name] = 0
            self.plain_ops.discard(name)
            return
        self._plain_calls[name] += 1
        if self._plain_calls[name] >= MIN_PLAIN_CALLS:
            self.plain_ops.add(name)

    def _has_several_devices(self) -> bool:
        if self._several_devices is None:
            self._several_devices = len(context.context().list_logical_devices()) > 1
        return self._several_devices


def hook_operations(patches: Patches, eager_ops: EagerOps) -> None:
    """Hook both entry points of eager operations: the fast path and the fallback.

    TensorFlow uses the fallback for inputs that the fast path rejects.
    """
    patches.replace(pywrap_tfe, "TFE_Py_FastPathExecute", partial(_hook_fast_path, eager_ops), api=API)
    patches.replace(execute, "execute", partial(_hook_fallback, eager_ops), api=API)
    patches.add_undo(eager_ops.counter.stop, api=API)


def _hook_fast_path(eager_ops: EagerOps, original: Any) -> Any:
    thread, plain_ops = eager_ops.counter.thread, eager_ops.plain_ops
    call_and_record = _make_recorded_call(eager_ops)

    def hook(*args: Any) -> Any:  # context, name of the operation, name of the call, inputs and attributes
        ops = thread.ops
        if ops.ops_until_sample > 1 and args[1] in plain_ops:
            ops.ops_until_sample -= 1
            return original(*args)
        return call_and_record(original, ops, args[1], args[3:], args, {})

    return hook


def _hook_fallback(eager_ops: EagerOps, original: Any) -> Any:
    thread, call_and_record = eager_ops.counter.thread, _make_recorded_call(eager_ops)

    def hook(op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        name = op_name.decode() if isinstance(op_name, bytes) else op_name
        all_args = (op_name, num_outputs, inputs, *args)
        if name.startswith(_COMPILED_PREFIXES):
            return original(*all_args, **kwargs)
        return call_and_record(original, thread.ops, name, inputs, all_args, kwargs)

    return hook


def _make_recorded_call(eager_ops: EagerOps) -> Callable[..., Any]:
    """Return a function that calls an entry point and passes the operation to `eager_ops`."""
    ledger, on_operation = eager_ops.ledger, eager_ops.on_operation
    postpone_sample = eager_ops.counter.postpone_sample

    def call_and_record(original: Any, ops: ThreadOps, name: str, inputs: Any, args: Any, kwargs: Any) -> Any:
        if not ledger.begin():
            postpone_sample(ops)
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()
            try:
                on_operation(ops, name, inputs, result, start, end)
            except Exception as error:
                ledger.note_failure(API, error)
            return result
        finally:
            ledger.end()

    return call_and_record


def _are_small(inputs: Any, result: Any) -> bool:
    """Whether all tensors of an operation have at most SMALL_ELEMENTS numbers."""
    results = result if type(result) is list else (result,)
    values = (*inputs, *results, *_inputs_of_type(inputs, EagerTensor), *_inputs_of_type(inputs, np.ndarray))
    return not any(
        (type(value) is EagerTensor and value._num_elements() > SMALL_ELEMENTS)
        or (type(value) is np.ndarray and value.size > SMALL_ELEMENTS)
        for value in values
    )


def _are_on_several_devices(inputs: Any, result: Any) -> bool:
    """Whether the tensors are on more than one device.

    Hot path if TensorFlow has several devices.
    """
    device = None
    for value in (*inputs, *result) if type(result) is list else (*inputs, result):
        if type(value) is EagerTensor:
            if device is not None and value.device != device:
                return True
            device = value.device
    return False


def _inputs_of_type(inputs: Any, input_type: type) -> Iterator[Any]:
    """Yield the inputs of one type, also from lists as in `tf.concat`.

    Stop at the first string: it is the name of an attribute, and attributes follow the inputs.
    """
    for value in inputs:
        if type(value) is input_type:
            yield value
        elif type(value) is list:
            yield from (item for item in value if type(item) is input_type)
        elif type(value) is str:
            return
