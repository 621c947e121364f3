"""Operations that run one by one: how many each line starts, arrays they are given, and what moves to reach them."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute

from forebay.doctor.capture.hooks.calls import failed, quietly
from forebay.doctor.capture.hooks.counting import TOGETHER_NS, Counted
from forebay.doctor.capture.hooks.tensorflow.crossings import Crossings
from forebay.doctor.capture.hooks.tensorflow.values import EagerTensor
from forebay.doctor.capture.hooks.tensorflow.waits import Waits
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "Operations", "watch_operations"]

API = "tf operations"
_PLAIN = frozenset({EagerTensor, str, int, float, bool, bytes, type(None), tuple})  # what an operation mostly gets
_COMPILED = ("__inference_", "__forward_", "__backward_")  # functions, which run by the same door


class Operations:
    """Told of every operation. Deep inside a framework the line is found slowly: of many, some are looked for."""

    def __init__(self, patches: Patches, waits: Waits) -> None:
        self.ledger = patches.ledger
        self._waits = waits
        self._crossings = Crossings(patches, API)
        self._thread = Counted()
        self._several: bool | None = None  # devices

    def ran(self, name: str, inputs: Any, result: Any, start: int, end: int) -> None:
        counts = self._thread.counts
        counts.add(start, end)
        if self._several is None:
            self._several = len(context.context().list_logical_devices()) > 1
        given = not _PLAIN.issuperset(map(type, inputs))
        moved = self._several and (list in map(type, inputs) or _is_spread(inputs, result))
        if counts.count < counts.stride and not given and not moved:
            return
        line = self.ledger.lines.here(1)
        if line < 0:
            counts.forget()
            return
        if start - counts.since > TOGETHER_NS:
            self.write()
            self._waits.look_at_the_clock(start)
        counts.belong(line, end)
        if given:
            for value in _inputs_of(inputs, np.ndarray):
                self._crossings.given(name, value, result, line, start, end)
        if moved:
            self._crossings.moved(name, _inputs_of(inputs, EagerTensor), result, line, start, end)

    def write(self) -> None:
        """Write down what was counted on this thread."""
        self._thread.write(self.ledger, API)


def watch_operations(patches: Patches, operations: Operations) -> None:
    """Both doors: the fast one, and the one for whatever that does not take."""
    ledger = patches.ledger

    def fast(original: Any) -> Any:
        def hook(*args: Any) -> Any:
            if not ledger.enter():
                return original(*args)
            try:
                start = perf_counter_ns()
                result = original(*args)
                end = perf_counter_ns()
                try:
                    operations.ran(args[1], args[3:], result, start, end)
                except Exception as error:
                    failed(ledger, API, error)
                return result
            finally:
                ledger.leave()

        return hook

    def slow(original: Any) -> Any:
        def hook(op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            name = op_name.decode() if isinstance(op_name, bytes) else op_name
            if name.startswith(_COMPILED) or not ledger.enter():
                return original(op_name, num_outputs, inputs, *args, **kwargs)
            try:
                start = perf_counter_ns()
                result = original(op_name, num_outputs, inputs, *args, **kwargs)
                quietly(ledger, API, operations.ran, name, inputs, result, start, perf_counter_ns())
                return result
            finally:
                ledger.leave()

        return hook

    patches.replace(pywrap_tfe, "TFE_Py_FastPathExecute", fast, api=API)
    patches.replace(execute, "execute", slow, api=API)
    patches.undo_with(operations.write, api=API)


def _is_spread(inputs: Any, result: Any) -> bool:
    """Whether tensors are on more than one device; it is asked of every operation where there are several."""
    device = None
    for value in (*inputs, *result) if type(result) is list else (*inputs, result):
        if type(value) is EagerTensor:
            if device is not None and value.device != device:
                return True
            device = value.device
    return False


def _inputs_of(inputs: Any, kind: type) -> Iterator[Any]:
    """Those of one kind, and those in lists of them, as of `tf.concat`; they are over at the name of an attribute."""
    for value in inputs:
        if type(value) is kind:
            yield value
        elif type(value) is list:
            yield from (each for each in value if type(each) is kind)
        elif type(value) is str:
            return
