"""What a graph moves between devices: its edges whose two ends were placed apart, found once for each graph.

How long such a move takes cannot be told from outside: it is part of the run.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import Kind

__all__ = ["Moved", "Placed", "ancestors", "moves_in"]

API = "tf.device"
MOST = 4  # moves of a graph that are written down, the largest
MOST_OPERATIONS = 100_000  # looked at in a graph
# Run on a GPU where there is one and nothing else was asked for.
_SURELY_ON_GPU = frozenset(
    {"MatMul", "BatchMatMulV2", "Conv2D", "BiasAdd", "Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Relu", "Tanh"}
    | {"Sigmoid", "Softmax", "Mean", "Sum", "Max", "Exp", "Log", "Sqrt", "Square", "RandomStandardNormal"}
)


class Moved(NamedTuple):
    """A tensor that an operation needs elsewhere than it was made."""

    nbytes: int  # none where its shape is known only when it runs
    detail: dict[str, Any]
    line: int


class Placed:
    """Writes down, with every run of a graph, what it moves."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: WeakKeyDictionary[Any, dict[Any, list[Moved]]] = WeakKeyDictionary()

    def ran(self, owner: Any, key: Any, moves: Callable[[], Iterable[Moved]], end: int) -> None:
        """A graph has run; `moves` is asked once for every key of its owner."""
        known = self._known.setdefault(owner, {})
        if key not in known:
            known[key] = sorted(moves(), key=lambda moved: -moved.nbytes)[:MOST]
        for moved in known[key]:
            self._ledger.add(Kind.MOVE, API, end, end=end, nbytes=moved.nbytes, detail=moved.detail, line=moved.line)


def moves_in(ledger: Ledger, operations: Iterable[Any], devices: Iterable[str]) -> Iterator[Moved]:
    """Of these operations, on the devices that there are."""
    there = {_short(device) for device in devices}
    for number, operation in enumerate(operations):
        if number >= MOST_OPERATIONS:
            return
        target = _place(operation, there)
        for tensor in operation.inputs if target else ():
            source = _place(tensor.op, there)
            if source and source != target and tensor.dtype.is_floating:
                yield _moved(ledger, operation, tensor, source, target)


def ancestors(fetched: Iterable[Any], fed: Iterable[Any]) -> Iterator[Any]:
    """The operations that have to run for these, where others are fed."""
    coming, met = list(fetched), {tensor.op for tensor in fed}
    while coming:
        operation = coming.pop()
        if operation in met:
            continue
        met.add(operation)
        yield operation
        coming += [tensor.op for tensor in operation.inputs]
        coming += operation.control_inputs


def _place(operation: Any, there: set[str]) -> str:
    """Where it runs, if that was said or goes without saying."""
    asked = _short(operation.device)
    if not asked and operation.type in _SURELY_ON_GPU and "GPU:0" in there:
        return "GPU:0"
    return asked if asked in there else ""


def _short(device: str) -> str:
    return device.rpartition("device:")[2].replace("*", "0")


def _moved(ledger: Ledger, operation: Any, tensor: Any, source: str, target: str) -> Moved:
    nbytes = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    detail = {"op": operation.type, "source": source, "target": target, "dtype": tensor.dtype.name, "shape": shape}
    frames = ((frame.filename, frame.lineno, frame.name) for frame in reversed(list(operation.traceback)))
    return Moved(nbytes, detail | {"timed": False}, ledger.lines.of_frames(frames))
