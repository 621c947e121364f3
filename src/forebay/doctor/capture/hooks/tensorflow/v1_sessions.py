"""Sessions of TensorFlow's first version: made, run, what they are fed and what they hand back.

How long the copies take is part of the run and cannot be told from it: an upload lasts until the graph begins, a
download from where it ends.
"""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
from tensorflow.python.client import session as sessions

from forebay.doctor.capture.hooks.calls import Call, watch_call, write
from forebay.doctor.capture.hooks.tensorflow.graph_placement import Moved, Placed, ancestors, moves_in
from forebay.doctor.capture.hooks.tensorflow.tensors import key_of_array
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["watch_sessions"]

API = "Session.run"


class _Thread(threading.local):
    graph: Call | None = None  # the run of the graph inside the call that is about to end


def watch_sessions(patches: Patches) -> None:
    ledger, thread = patches.ledger, _Thread()
    fresh: WeakSet[Any] = WeakSet()  # sessions that have not run yet
    made, ran = partial(_made, ledger, fresh), partial(_ran, ledger, thread, fresh, Placed(ledger))
    watch_call(patches, sessions.BaseSession, "__init__", api="tf.compat.v1.Session", then=made)
    watch_call(patches, sessions.BaseSession, "run", api=API, then=ran, inner="seen")
    watch_call(patches, sessions.BaseSession, "_do_run", api=API, then=partial(_ran_graph, thread))


def _made(ledger: Ledger, fresh: WeakSet[Any], call: Call) -> None:
    fresh.add(call.args[0])
    write(ledger, Kind.BUILD, "tf.compat.v1.Session", call, detail={"what": "Session"})


def _ran_graph(thread: _Thread, call: Call) -> None:
    thread.graph = call


def _ran(ledger: Ledger, thread: _Thread, fresh: WeakSet[Any], placed: Placed, call: Call) -> None:
    """The first run of a session also prepares the graph: prunes it, places it, makes what executes it."""
    graph, thread.graph = thread.graph, None
    first = call.args[0] in fresh
    fresh.discard(call.args[0])
    if graph is not None:
        feeds = graph.argument(4, "feed_dict") or {}
        _write_each(ledger, Kind.UPLOAD, list(feeds.values()), call.start, graph.start)
    write(ledger, Kind.RUN, API, call, detail={"function": "graph", "first": first})
    if graph is not None:
        _write_each(ledger, Kind.DOWNLOAD, graph.result or [], graph.end, call.end)
        _write_moves(ledger, placed, graph)


def _write_each(ledger: Ledger, kind: Kind, values: list[Any], start: int, end: int) -> None:
    """The time is that of all arrays together: the first has it."""
    for array in (value for value in values if isinstance(value, np.ndarray | np.generic)):
        detail = {"dtype": array.dtype.name, "shape": list(array.shape)}
        detail |= {"key": key_of_array(array), "from_dtype": array.dtype.name} if kind is Kind.UPLOAD else {}
        write(ledger, kind, API, Call(start, end, None, (), {}), nbytes=array.nbytes, detail=detail)
        start = end


def _write_moves(ledger: Ledger, placed: Placed, run: Call) -> None:
    session, fed = run.args[0], [key.deref() for key in run.argument(4, "feed_dict") or {}]
    wanted = [*(run.argument(2, "target_list") or []), *(tensor.op for tensor in run.argument(3, "fetch_list") or [])]

    def moves() -> Iterator[Moved]:
        devices = [device.name for device in session.list_devices()]
        return moves_in(ledger, ancestors(wanted, fed), devices)

    placed.ran(session.graph, tuple(operation.name for operation in wanted), moves, run.end)
