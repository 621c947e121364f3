"""Compiled functions: made, traced and called. Whatever a call converts, reads or waits for is seen beside it."""

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
from tensorflow.python.framework import ops
from tensorflow.python.util import nest

from forebay.doctor.capture.hooks.calls import Call, quietly, watch_call, write
from forebay.doctor.capture.hooks.tensorflow.graph_placement import Moved, Placed, moves_in
from forebay.doctor.capture.hooks.tensorflow.input_waits import Waits
from forebay.doctor.capture.hooks.tensorflow.signatures import reason_of, signature_of
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["Shapes", "watch_functions"]

API = "tf.function"
_ITERATORS = (iterator_ops.OwnedIterator, tf.distribute.DistributedIterator)
SMALLEST_CONSTANT = 1 << 20  # bytes: less is what graphs are made of


Shape = tuple[int, ...]


class Shapes:
    """Remembers what each function of XLA's was called with."""

    def __init__(self) -> None:
        self._met: WeakKeyDictionary[Any, set[tuple[Shape, ...]]] = WeakKeyDictionary()

    def compiled_for(self, call: Call) -> dict[str, str] | None:
        """Why this call was compiled for, where it was: its shapes are new."""
        function, *args = call.args
        if not getattr(function, "_jit_compile", False):
            return None
        met, shapes = self._met.setdefault(function, set()), _shapes_in((args, call.kwargs))
        if shapes in met:
            return None
        reason = "shape" if met else "first"
        met.add(shapes)
        return {"function": function.name, "reason": reason, "signature": ", ".join(map(str, map(list, shapes)))}


def _shapes_in(arguments: Any) -> tuple[Shape, ...]:
    found = []
    for value in nest.flatten(arguments):
        if type(value) is EagerTensor:
            found.append(value._shape_tuple())
        elif isinstance(value, np.ndarray):
            found.append(value.shape)
    return tuple(found)


def watch_functions(patches: Patches, waits: Waits) -> None:
    function = polymorphic_function.Function
    traces = _Traces(patches.ledger)
    ran = partial(_ran, patches.ledger, waits, traces, Shapes())
    watch_call(patches, function, "__call__", api=API, then=ran, when=_is_compiled, inner="seen")
    made = partial(_made, patches.ledger)
    watch_call(patches, function, "__init__", api="making of tf.function", then=made, when=_is_outside)
    patches.replace(tracing_compilation, "_create_concrete_function", traces.watched, api="tracing of tf.function")
    patches.replace(ops, "_create_graph_constant", traces.constant, api="constants of graphs")


def _is_outside(*_: Any, **__: Any) -> bool:
    return bool(context.executing_eagerly())


def _is_compiled(function: Any, *_: Any, **__: Any) -> bool:
    """Not while another one is traced, nor where functions were told to run as plain Python."""
    return bool(context.executing_eagerly()) and not getattr(function, "_run_functions_eagerly", False)


def _made(ledger: Ledger, call: Call) -> None:
    detail = {"what": "function", "function": call.argument(2, "name", "")}
    write(ledger, Kind.BUILD, API, call, detail=detail)


def _ran(ledger: Ledger, waits: Waits, traces: "_Traces", shapes: Shapes, call: Call) -> None:
    write(ledger, Kind.RUN, API, call, detail={"function": call.args[0].name})
    compiled = shapes.compiled_for(call)
    if compiled is not None:
        write(ledger, Kind.COMPILE, "XLA", call, detail=compiled)
    traces.write_moves(call)
    iterator = _iterator_in(call.args[1:]) or _iterator_in(call.kwargs.values())
    if iterator is None:
        waits.look_at_the_clock(call.end)
    else:
        waits.waited_inside(iterator, call.start, call.end)


def _iterator_in(arguments: Iterable[Any]) -> Any:
    for value in arguments:
        if type(value) is not EagerTensor and isinstance(value, _ITERATORS):
            return value
    return None


class _Thread(threading.local):
    depth = 0  # functions traced inside functions
    constants_nbytes = 0  # embedded since the outermost one began
    graph: Any = None  # that was traced last, by the call which goes on


class _Traces:
    """The making of graphs: the outermost is written down, with the arrays that were embedded in it or below it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread = _Thread()
        self._placed = Placed(ledger)

    def write_moves(self, call: Call) -> None:
        """What the function moves between devices, as it was traced when it was first called."""
        graph, self._thread.graph = self._thread.graph, None

        def moves() -> Iterator[Moved]:
            devices = [device.name for device in context.context().list_logical_devices()]
            return moves_in(self._ledger, graph.get_operations() if graph else (), devices)

        self._placed.ran(call.args[0], API, moves, call.end)

    def watched(self, original: Any) -> Any:
        def hook(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            given, thread = (function_type, type_context, func_graph, tracing_options), self._thread
            if not self._ledger.on or thread.depth:
                return original(*given)
            start, thread.depth, thread.constants_nbytes = perf_counter_ns(), 1, 0
            try:
                traced = original(*given)
            finally:
                thread.depth = 0
            thread.graph = getattr(traced, "graph", None)
            quietly(self._ledger, API, self._traced, start, function_type, tracing_options)
            return traced

        return hook

    def constant(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            tensor = original(*args, **kwargs)
            if self._ledger.on:
                quietly(self._ledger, "tf.constant", self._embedded, start, tensor)
            return tensor

        return hook

    def _traced(self, start: int, function_type: Any, options: Any) -> None:
        detail = {"function": options.name, "signature": signature_of(function_type)}
        earlier = [traced.function_type for traced in options.function_cache.values()] if options.function_cache else []
        reason = reason_of(function_type, earlier)
        detail |= {"reason": reason} if reason else {}
        embedded = self._thread.constants_nbytes
        detail |= {"constants_nbytes": embedded} if embedded >= SMALLEST_CONSTANT else {}
        call = Call(start, perf_counter_ns(), None, (), {})
        write(self._ledger, Kind.COMPILE, API, call, detail=detail)

    def _embedded(self, start: int, tensor: Any) -> None:
        nbytes = (tensor.shape.num_elements() or 0) * (tensor.dtype.size or 0)
        if self._thread.depth:
            self._thread.constants_nbytes += nbytes
        elif nbytes >= SMALLEST_CONSTANT:  # in a graph that is put together by hand
            detail = {"what": "constant", "constants_nbytes": nbytes, "dtype": tensor.dtype.name}
            call = Call(start, perf_counter_ns(), None, (), {})
            write(self._ledger, Kind.BUILD, "tf.constant", call, nbytes=nbytes, detail=detail)
