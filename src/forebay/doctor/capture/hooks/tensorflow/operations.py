"""Operations that run one by one: how many each line starts, arrays they are given, and what moves to reach them."""

import threading
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute

from forebay.doctor.capture.hooks.calls import failed, quietly
from forebay.doctor.capture.hooks.tensorflow.crossings import Crossings
from forebay.doctor.capture.hooks.tensorflow.values import EagerTensor
from forebay.doctor.capture.hooks.tensorflow.waits import Waits
from forebay.doctor.capture.patches import Patches
from forebay.doctor.events import Kind

__all__ = ["API", "Operations", "watch_operations"]

API = "tf operations"
TOGETHER_NS = 5_000_000  # what runs in so long is written down as one event a line
TINY_NS = 20_000  # an operation that is over by then has done little but start
_COMPILED = ("__inference_", "__forward_", "__backward_")  # functions, which run by the same door


class _Counts(threading.local):
    """What a thread has run since it was last written down: by line, the count, the tiny ones, time and end."""

    def __init__(self) -> None:
        self.since = perf_counter_ns()
        self.lines: dict[int, list[int]] = {}


class Operations:
    """Told of every operation, at a fifth of what calling one costs, most of it to find the line."""

    def __init__(self, patches: Patches, waits: Waits) -> None:
        self.ledger = patches.ledger
        self._waits = waits
        self._crossings = Crossings(patches, API)
        self._counts = _Counts()
        self._several: bool | None = None  # devices

    def ran(self, name: str, inputs: Any, result: Any, start: int, end: int) -> None:
        line = self.ledger.lines.here(1)
        if line < 0:
            return
        self._count(line, start, end)
        kinds = {*map(type, inputs)}
        if np.ndarray in kinds or list in kinds:
            for value in _inputs_of(inputs, np.ndarray):
                self._crossings.given(name, value, result, line, start, end)
        if self._several is None:
            self._several = len(context.context().list_logical_devices()) > 1
        if self._several and (list in kinds or _is_spread(inputs, result)):
            self._crossings.moved(name, _inputs_of(inputs, EagerTensor), result, line, start, end)

    def write(self) -> None:
        """Write down what was counted on this thread."""
        counts, self._counts.lines = self._counts.lines, {}
        for line, (count, tiny, spent, end) in counts.items():
            detail = {"count": count, "tiny": tiny}
            self.ledger.add(Kind.OPS, API, end - spent, end=end, detail=detail, line=line)
        self._counts.since = perf_counter_ns()

    def _count(self, line: int, start: int, end: int) -> None:
        if start - self._counts.since > TOGETHER_NS:
            self.write()
            self._waits.look_at_the_clock(start)
        spent = end - start
        counts = self._counts.lines.get(line)
        if counts is None:
            self._counts.lines[line] = [1, int(spent < TINY_NS), spent, end]
            return
        counts[0] += 1
        counts[1] += spent < TINY_NS
        counts[2] += spent
        counts[3] = end


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
