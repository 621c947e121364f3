"""Hooks for sessions of TensorFlow 1.

The hooks record when a session is created and run, which arrays it is fed, and which arrays it returns. TensorFlow
copies the arrays during `Session.run`, so the copies cannot be timed separately. As an estimate, the upload event lasts
from the call of `Session.run` to the start of the graph, and the download event from the end of the graph to the
return.
"""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
from tensorflow.python.client import session as sessions

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call, record_call
from forebay.doctor.capture.hooks.tensorflow.graph_placement import (
    GraphMove,
    GraphMoveRecorder,
    find_moves,
    required_operations,
)
from forebay.doctor.capture.hooks.tensorflow.tensors import fingerprint_of_array
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["hook_sessions"]

API = "Session.run"


class _SessionThreadState(threading.local):
    """The run of a graph in one thread."""

    graph_run: HookedCall | None = None  # the `_do_run` call of the current `Session.run` call


def hook_sessions(patches: Patches) -> None:
    ledger, thread_state, session = patches.ledger, _SessionThreadState(), sessions.BaseSession
    unused_sessions: WeakSet[Any] = WeakSet()  # sessions that the script created under these hooks and has not run yet
    on_created = partial(_record_created, ledger, unused_sessions)
    hook_call(patches, session, "__init__", CallHook("tf.compat.v1.Session", on_created))
    on_run = partial(_record_run, ledger, thread_state, unused_sessions, GraphMoveRecorder(ledger))
    hook_call(patches, session, "run", CallHook(API, on_run, nested="recorded"))
    hook_call(patches, session, "_do_run", CallHook(API, partial(_store_graph_run, thread_state)))


def _record_created(ledger: Ledger, unused_sessions: WeakSet[Any], call: HookedCall) -> None:
    unused_sessions.add(call.args[0])
    record_call(ledger, EventKind.BUILD, "tf.compat.v1.Session", call, detail={"what": "Session"})


def _store_graph_run(thread_state: _SessionThreadState, call: HookedCall) -> None:
    thread_state.graph_run = call


def _record_run(
    ledger: Ledger,
    thread_state: _SessionThreadState,
    unused_sessions: WeakSet[Any],
    moves: GraphMoveRecorder,
    call: HookedCall,
) -> None:
    """Record a run, its fed and returned arrays, and the moves inside its graph.

    The detail "first" marks the first run of a session, in which TensorFlow also prunes the graph, places its
    operations and builds the executor.
    """
    graph_run, thread_state.graph_run = thread_state.graph_run, None
    is_first = call.args[0] in unused_sessions
    unused_sessions.discard(call.args[0])
    if graph_run is not None:
        feeds = graph_run.argument(4, "feed_dict") or {}
        _record_arrays(ledger, EventKind.UPLOAD, list(feeds.values()), call.start, graph_run.start)
    record_call(ledger, EventKind.RUN, API, call, detail={"function": "graph", "first": is_first})
    if graph_run is not None:
        _record_arrays(ledger, EventKind.DOWNLOAD, graph_run.result or [], graph_run.end, call.end)
        _record_moves(ledger, moves, graph_run)


def _record_arrays(ledger: Ledger, kind: EventKind, values: list[Any], start: int, end: int) -> None:
    """Record an event for each array.

    Only the total time of all copies is known. The first event gets this time; the others have no duration.
    """
    for array in (value for value in values if isinstance(value, np.ndarray | np.generic)):
        detail = {"dtype": array.dtype.name, "shape": list(array.shape)}
        if kind is EventKind.UPLOAD:
            detail |= {"key": fingerprint_of_array(array), "from_dtype": array.dtype.name}
        record_call(ledger, kind, API, HookedCall(start, end, None, (), {}), nbytes=array.nbytes, detail=detail)
        start = end


def _record_moves(ledger: Ledger, recorder: GraphMoveRecorder, graph_run: HookedCall) -> None:
    """Record the tensors that move between devices inside the graph."""
    session, feeds = graph_run.args[0], graph_run.argument(4, "feed_dict") or {}
    fed_tensors = [reference.deref() for reference in feeds]
    targets, fetches = graph_run.argument(2, "target_list") or [], graph_run.argument(3, "fetch_list") or []
    fetched_operations = [*targets, *(tensor.op for tensor in fetches)]

    def find_graph_moves() -> Iterator[GraphMove]:
        devices = [device.name for device in session.list_devices()]
        return find_moves(ledger, required_operations(fetched_operations, fed_tensors), devices)

    key = tuple(operation.name for operation in fetched_operations)
    recorder.record(session.graph, key, find_graph_moves, graph_run.end)
