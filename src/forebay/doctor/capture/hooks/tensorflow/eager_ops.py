"""Operations that run one by one: how many each line starts, and what they upload or move."""

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
_PLAIN_TYPES = frozenset({EagerTensor, str, int, float, bool, bytes, type(None), tuple})  # inputs without a transfer
MIN_PLAIN_SAMPLES = 16  # samples without a transfer, after which an operation counts as plain
_COMPILED_PREFIXES = ("__inference_", "__forward_", "__backward_")  # compiled functions use the same entry point


class EagerOps:
    """Receives the operations that are sampled."""

    def __init__(self, patches: Patches, waits: InputWaits) -> None:
        self.ledger = patches.ledger
        self.counter = OpCounter(patches.ledger, API)
        self.plain: set[str] = set()  # operations that have not caused a transfer so far
        self._waits = waits
        self._transfers = Transfers(patches, API)
        self._plain_samples: Counter[str] = Counter()
        self._several_devices: bool | None = None

    def on_operation(self, ops: ThreadOps, name: str, inputs: Any, result: Any, start: int, end: int) -> None:
        has_array = not _PLAIN_TYPES.issuperset(map(type, inputs))
        may_move = self._has_several_devices() and (
            list in map(type, inputs) or _are_on_several_devices(inputs, result)
        )
        self._classify(name, plain=not has_array and not may_move)
        if ops.until_sample:
            ops.skip_op(end)
            line = self.ledger.lines.current_line(1) if has_array or may_move else -1
        else:
            self._waits.stop_if_due(start)
            line = self.counter.sample(ops, start, end)
        if line < 0:
            return
        if has_array:
            for array in _inputs_of_type(inputs, np.ndarray):
                self._transfers.record_array(name, array, result, line, start, end)
        if may_move:
            self._transfers.record_moves(name, _inputs_of_type(inputs, EagerTensor), result, line, start, end)

    def _classify(self, name: str, *, plain: bool) -> None:
        """Every transfer must be recorded, so only operations known to cause none are skipped at times."""
        if not plain:
            self._plain_samples[name] = 0
            self.plain.discard(name)
            return
        self._plain_samples[name] += 1
        if self._plain_samples[name] >= MIN_PLAIN_SAMPLES:
            self.plain.add(name)

    def _has_several_devices(self) -> bool:
        if self._several_devices is None:
            self._several_devices = len(context.context().list_logical_devices()) > 1
        return self._several_devices


def hook_operations(patches: Patches, operations: EagerOps) -> None:
    """Hook both entry points: the fast path, and the fallback for inputs that the fast path rejects."""
    patches.replace(pywrap_tfe, "TFE_Py_FastPathExecute", partial(_hook_fast_path, operations), api=API)
    patches.replace(execute, "execute", partial(_hook_fallback, operations), api=API)
    patches.add_undo(operations.counter.stop, api=API)


def _hook_fast_path(operations: EagerOps, original: Any) -> Any:
    thread, plain = operations.counter.thread, operations.plain
    call = _make_recorded_call(operations)

    def hook(*args: Any) -> Any:
        ops = thread.ops
        if ops.until_sample > 1 and args[1] in plain:
            ops.until_sample -= 1
            return original(*args)
        return call(original, ops, args[1], args[3:], args, {})

    return hook


def _hook_fallback(operations: EagerOps, original: Any) -> Any:
    thread, call = operations.counter.thread, _make_recorded_call(operations)

    def hook(op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        name = op_name.decode() if isinstance(op_name, bytes) else op_name
        all_args = (op_name, num_outputs, inputs, *args)
        if name.startswith(_COMPILED_PREFIXES):
            return original(*all_args, **kwargs)
        return call(original, thread.ops, name, inputs, all_args, kwargs)

    return hook


def _make_recorded_call(operations: EagerOps) -> Callable[..., Any]:
    ledger, pause, on_operation = operations.ledger, operations.counter.pause, operations.on_operation

    def call(original: Any, ops: ThreadOps, name: str, inputs: Any, args: Any, kwargs: Any) -> Any:
        if not ledger.begin():
            pause(ops)
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

    return call


def _are_on_several_devices(inputs: Any, result: Any) -> bool:
    """Whether the tensors lie on more than one device. Called for every operation if there are several devices."""
    device = None
    for value in (*inputs, *result) if type(result) is list else (*inputs, result):
        if type(value) is EagerTensor:
            if device is not None and value.device != device:
                return True
            device = value.device
    return False


def _inputs_of_type(inputs: Any, kind: type) -> Iterator[Any]:
    """Yield the inputs of one type, also from lists as in `tf.concat`. The first attribute name ends the inputs."""
    for value in inputs:
        if type(value) is kind:
            yield value
        elif type(value) is list:
            yield from (each for each in value if type(each) is kind)
        elif type(value) is str:
            return
