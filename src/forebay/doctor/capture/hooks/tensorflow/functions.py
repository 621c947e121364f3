"""Hooks for `tf.function`: when compiled functions are created, traced and called.

During a call of a compiled function, other hooks still record, so that they do not miss uploads and read-backs.
"""

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

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call, record_call, run_guarded
from forebay.doctor.capture.hooks.tensorflow.graph_flops import count_graph_flops
from forebay.doctor.capture.hooks.tensorflow.graph_placement import GraphMove, GraphMoveRecorder, find_moves
from forebay.doctor.capture.hooks.tensorflow.input_waits import InputWaits
from forebay.doctor.capture.hooks.tensorflow.signatures import format_signature, retrace_reason
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["XlaShapes", "hook_functions", "is_eager"]

API = "tf.function"
_ITERATOR_TYPES = (iterator_ops.OwnedIterator, tf.distribute.DistributedIterator)
MIN_CONSTANT_NBYTES = 1 << 20  # smaller constants are common in graphs and use little memory

Shape = tuple[int, ...]


class XlaShapes:
    """Stores the argument shapes of each function that XLA compiles.

    XLA compiles again for each new shape.
    """

    def __init__(self) -> None:
        self._known_shapes: WeakKeyDictionary[Any, set[tuple[Shape, ...]]] = WeakKeyDictionary()  # by function

    def describe_compilation(self, call: HookedCall) -> dict[str, str] | None:
        """Describe the compilation that a call with new shapes caused; None if it caused none."""
        function, *args = call.args
        if not getattr(function, "_jit_compile", False):
            return None
        known, shapes = self._known_shapes.setdefault(function, set()), _shapes_in((args, call.kwargs))
        if shapes in known:
            return None
        reason = "shape" if known else "first"
        known.add(shapes)
        return {"function": function.name, "reason": reason, "signature": ", ".join(map(str, map(list, shapes)))}


def _shapes_in(arguments: Any) -> tuple[Shape, ...]:
    shapes = []
    for value in nest.flatten(arguments):
        if type(value) is EagerTensor:
            shapes.append(value._shape_tuple())
        elif isinstance(value, np.ndarray):
            shapes.append(value.shape)
    return tuple(shapes)


def hook_functions(patches: Patches, waits: InputWaits) -> None:
    function, ledger = polymorphic_function.Function, patches.ledger
    traces = _TraceHooks(ledger)
    on_run = partial(_record_run, ledger, waits, traces, XlaShapes())
    hook_call(patches, function, "__call__", CallHook(API, on_run, should_record=traces.begin_call, nested="recorded"))
    on_created = partial(_record_created, ledger)
    hook_call(patches, function, "__init__", CallHook("making of tf.function", on_created, should_record=is_eager))
    patches.replace(tracing_compilation, "_create_concrete_function", traces.hook_trace, api="tracing of tf.function")
    patches.replace(ops, "_create_graph_constant", traces.hook_constant, api="constants of graphs")


def is_eager(*_: Any, **__: Any) -> bool:
    """Return whether TensorFlow runs eagerly; False while it traces a graph."""
    return bool(context.executing_eagerly())


def _runs_compiled(function: Any) -> bool:
    """Whether a call runs compiled code.

    It does not while TensorFlow traces another function, or after `tf.config.run_functions_eagerly(True)`.
    """
    return is_eager() and not getattr(function, "_run_functions_eagerly", False)


def _record_created(ledger: Ledger, call: HookedCall) -> None:
    detail = {"what": "function", "function": call.argument(2, "name", "")}
    record_call(ledger, EventKind.BUILD, API, call, detail=detail)


def _record_run(
    ledger: Ledger, waits: InputWaits, traces: "_TraceHooks", xla_shapes: XlaShapes, call: HookedCall
) -> None:
    line = record_call(ledger, EventKind.RUN, API, call, detail={"function": call.args[0].name})
    compilation = xla_shapes.describe_compilation(call)
    if compilation is not None:
        record_call(ledger, EventKind.COMPILE, "XLA", call, detail=compilation)
    traces.record_moves(call)
    iterator = _iterator_in(call.args[1:]) or _iterator_in(call.kwargs.values())
    if iterator is None:
        waits.stop_trace_if_due(call.end)
    else:
        waits.on_call(call, iterator, line)


def _iterator_in(arguments: Iterable[Any]) -> Any:
    for value in arguments:
        if type(value) is not EagerTensor and isinstance(value, _ITERATOR_TYPES):
            return value
    return None


class _TraceThreadState(threading.local):
    """The current and the last trace of one thread."""

    is_tracing = False
    constants_nbytes = 0  # bytes of arrays that the graph of the outermost trace contains so far
    graph: Any = None  # the last traced graph, until the call that caused the trace is recorded


class _TraceHooks:
    """Records traces, large constants of graphs, and moves inside graphs.

    Nested traces have no event of their own. Their constants count for the outermost trace.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread_state = _TraceThreadState()
        self._moves = GraphMoveRecorder(ledger)

    def begin_call(self, function: Any, /, *_: Any, **__: Any) -> bool:
        """Return whether to record a call: whether it runs compiled code.

        Drop the graph of a trace whose call was not recorded, such as that of `get_concrete_function`.
        """
        if not _runs_compiled(function):
            return False
        self._thread_state.graph = None
        return True

    def record_moves(self, call: HookedCall) -> None:
        """Record the tensors that a call moves between devices.

        The moves are those in the graph that the first recorded call of the function traced. If TensorFlow traced the
        function earlier, its moves are unknown and not recorded.
        """
        graph, self._thread_state.graph = self._thread_state.graph, None

        def find_graph_moves() -> Iterator[GraphMove]:
            devices = [device.name for device in context.context().list_logical_devices()]
            return find_moves(self._ledger, graph.get_operations() if graph else (), devices)

        self._moves.record(call.args[0], API, find_graph_moves, call.end)

    def hook_trace(self, original: Any) -> Any:
        def hook(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            args, state = (function_type, type_context, func_graph, tracing_options), self._thread_state
            if not self._ledger.is_on or state.is_tracing:
                return original(*args)
            start, state.is_tracing, state.constants_nbytes = perf_counter_ns(), True, 0
            try:
                traced = original(*args)
            finally:
                state.is_tracing = False
            state.graph = getattr(traced, "graph", None)
            run_guarded(self._ledger, API, self._record_trace, start, function_type, tracing_options)
            return traced

        return hook

    def hook_constant(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            tensor = original(*args, **kwargs)
            if self._ledger.is_on:
                run_guarded(self._ledger, "tf.constant", self._record_constant, start, tensor)
            return tensor

        return hook

    def _record_trace(self, start: int, function_type: Any, options: Any) -> None:
        detail = {"function": options.name, "signature": format_signature(function_type)}
        cache = options.function_cache
        earlier_types = [traced.function_type for traced in cache.values()] if cache else []
        reason = retrace_reason(function_type, earlier_types)
        detail |= {"reason": reason} if reason else {}
        nbytes = self._thread_state.constants_nbytes
        detail |= {"constants_nbytes": nbytes} if nbytes >= MIN_CONSTANT_NBYTES else {}
        end = perf_counter_ns()
        flops = count_graph_flops(self._thread_state.graph) if self._thread_state.graph is not None else None
        detail |= {"flops": flops} if flops is not None else {}
        call = HookedCall(start, end, None, (), {})
        record_call(self._ledger, EventKind.COMPILE, API, call, detail=detail)

    def _record_constant(self, start: int, tensor: Any) -> None:
        nbytes = (tensor.shape.num_elements() or 0) * (tensor.dtype.size or 0)
        if self._thread_state.is_tracing:
            self._thread_state.constants_nbytes += nbytes
        elif nbytes >= MIN_CONSTANT_NBYTES:  # the script builds a graph without `tf.function`
            detail = {"what": "constant", "constants_nbytes": nbytes, "dtype": tensor.dtype.name}
            call = HookedCall(start, perf_counter_ns(), None, (), {})
            record_call(self._ledger, EventKind.BUILD, "tf.constant", call, nbytes=nbytes, detail=detail)
