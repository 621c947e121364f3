"""Sessions of TensorFlow's first version: made, run, what they are fed and what they hand back.

How long the copies take is part of the run and cannot be told from it: an upload lasts until the graph begins, a
download from where it ends.
"""

import threading
from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.client import session as sessions

from forebay.doctor.capture.hooks.calls import Call, watch_call, write
from forebay.doctor.capture.hooks.tensorflow.values import key_of_array
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.events import Kind

__all__ = ["watch_sessions"]

API = "Session.run"


class _Thread(threading.local):
    graph: Call | None = None  # the run of the graph inside the call that is about to end


def watch_sessions(patches: Patches) -> None:
    ledger, thread = patches.ledger, _Thread()
    made = partial(_made, ledger)
    watch_call(patches, sessions.BaseSession, "__init__", api="tf.compat.v1.Session", then=made)
    watch_call(patches, sessions.BaseSession, "run", api=API, then=partial(_ran, ledger, thread), inner="seen")
    watch_call(patches, sessions.BaseSession, "_do_run", api=API, then=partial(_ran_graph, thread))


def _made(ledger: Ledger, call: Call) -> None:
    write(ledger, Kind.BUILD, "tf.compat.v1.Session", call, detail={"what": "Session"})


def _ran_graph(thread: _Thread, call: Call) -> None:
    thread.graph = call


def _ran(ledger: Ledger, thread: _Thread, call: Call) -> None:
    graph, thread.graph = thread.graph, None
    if graph is not None:
        feeds = graph.argument(4, "feed_dict") or {}
        _write_each(ledger, Kind.UPLOAD, list(feeds.values()), call.start, graph.start)
    write(ledger, Kind.RUN, API, call, detail={"function": "graph"})
    if graph is not None:
        _write_each(ledger, Kind.DOWNLOAD, graph.result or [], graph.end, call.end)


def _write_each(ledger: Ledger, kind: Kind, values: list[Any], start: int, end: int) -> None:
    """The time is that of all arrays together: the first has it."""
    for array in (value for value in values if isinstance(value, np.ndarray | np.generic)):
        detail = {"dtype": array.dtype.name, "shape": list(array.shape)}
        detail |= {"key": key_of_array(array), "from_dtype": array.dtype.name} if kind is Kind.UPLOAD else {}
        write(ledger, kind, API, Call(start, end, None, (), {}), nbytes=array.nbytes, detail=detail)
        start = end
