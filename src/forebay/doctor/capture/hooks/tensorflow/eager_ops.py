"""Operations that run one by one: how many each line starts, arrays they are given, and what moves to reach them."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute

from forebay.doctor.capture.hooks.op_counter import Counting, Counts
from forebay.doctor.capture.hooks.tensorflow.input_waits import Waits
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor
from forebay.doctor.capture.hooks.tensorflow.transfers import Crossings
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "Operations", "watch_operations"]

API = "tf operations"
_PLAIN = frozenset({EagerTensor, str, int, float, bool, bytes, type(None), tuple})  # what an operation mostly gets
SURE = 16  # times that an operation has brought nothing over
_COMPILED = ("__inference_", "__forward_", "__backward_")  # functions, which run by the same door


class Operations:
    """Told of the operations that are looked at."""

    def __init__(self, patches: Patches, waits: Waits) -> None:
        self.ledger = patches.ledger
        self.counting = Counting(patches.ledger, API)
        self.plain: set[str] = set()  # operations that bring nothing over, as far as anybody knows
        self._waits = waits
        self._crossings = Crossings(patches, API)
        self._looked: Counter[str] = Counter()
        self._several: bool | None = None  # devices

    def ran(self, counts: Counts, name: str, inputs: Any, result: Any, start: int, end: int) -> None:
        given = not _PLAIN.issuperset(map(type, inputs))
        moved = self._has_several() and (list in map(type, inputs) or _is_spread(inputs, result))
        self._remember(name, plain=not given and not moved)
        if counts.left:
            counts.pass_over(end)
            line = self.ledger.lines.here(1) if given or moved else -1
        else:
            self._waits.look_at_the_clock(start)
            line = self.counting.look(counts, start, end)
        if line < 0:
            return
        if given:
            for value in _inputs_of(inputs, np.ndarray):
                self._crossings.given(name, value, result, line, start, end)
        if moved:
            self._crossings.moved(name, _inputs_of(inputs, EagerTensor), result, line, start, end)

    def _remember(self, name: str, *, plain: bool) -> None:
        """Crossings are all wanted: only what was seen to bring nothing over is left out of sight at times."""
        if not plain:
            self._looked[name] = 0
            self.plain.discard(name)
            return
        self._looked[name] += 1
        if self._looked[name] >= SURE:
            self.plain.add(name)

    def _has_several(self) -> bool:
        if self._several is None:
            self._several = len(context.context().list_logical_devices()) > 1
        return self._several


def watch_operations(patches: Patches, operations: Operations) -> None:
    """Both doors: the fast one, and the one for whatever that does not take."""
    patches.replace(pywrap_tfe, "TFE_Py_FastPathExecute", partial(_fast, operations), api=API)
    patches.replace(execute, "execute", partial(_slow, operations), api=API)
    patches.undo_with(operations.counting.stop, api=API)


def _fast(operations: Operations, original: Any) -> Any:
    thread, plain = operations.counting.thread, operations.plain
    call = _looking(operations)

    def hook(*args: Any) -> Any:
        counts = thread.counts
        if counts.left > 1 and args[1] in plain:
            counts.left -= 1
            return original(*args)
        return call(original, counts, args[1], args[3:], args, {})

    return hook


def _slow(operations: Operations, original: Any) -> Any:
    thread, call = operations.counting.thread, _looking(operations)

    def hook(op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        name = op_name.decode() if isinstance(op_name, bytes) else op_name
        given = (op_name, num_outputs, inputs, *args)
        if name.startswith(_COMPILED):
            return original(*given, **kwargs)
        return call(original, thread.counts, name, inputs, given, kwargs)

    return hook


def _looking(operations: Operations) -> Callable[..., Any]:
    ledger, pause, ran = operations.ledger, operations.counting.pause, operations.ran

    def call(original: Any, counts: Counts, name: str, inputs: Any, args: Any, kwargs: Any) -> Any:
        if not ledger.enter():
            pause(counts)
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()
            try:
                ran(counts, name, inputs, result, start, end)
            except Exception as error:
                ledger.failed(API, error)
            return result
        finally:
            ledger.leave()

    return call


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
