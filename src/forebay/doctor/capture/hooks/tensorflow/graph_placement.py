"""Moves inside a graph: tensors that TensorFlow copies between operations on different devices.

The doctor derives these moves from the graph. They cannot be timed, because they are part of the run of the graph.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["GraphMove", "GraphMoveRecorder", "find_moves", "required_operations"]

API = "tf.device"
MAX_MOVES = 4  # only this many moves of a graph, the largest, are recorded
MAX_OPERATIONS = 100_000  # only this many operations of a graph, the first, are examined
# Operations that run on a GPU if there is one and the script requests no device.
_GPU_OPERATIONS = frozenset(
    {"MatMul", "BatchMatMulV2", "Conv2D", "BiasAdd", "Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Relu", "Tanh"}
    | {"Sigmoid", "Softmax", "Mean", "Sum", "Max", "Exp", "Log", "Sqrt", "Square", "RandomStandardNormal"}
)


class GraphMove(NamedTuple):
    """A tensor that one device produces and another device consumes."""

    nbytes: int  # 0 if the shape is known only at run time
    detail: dict[str, Any]  # details of the event
    line: int  # index of the line of the script that created the consuming operation, or -1


class GraphMoveRecorder:
    """Records the moves of a graph after each run of the graph."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._moves: WeakKeyDictionary[Any, dict[Any, list[GraphMove]]] = WeakKeyDictionary()  # by owner and key

    def record(self, owner: Any, key: Any, find: Callable[[], Iterable[GraphMove]], end: int) -> None:
        """Record the moves of a run that ended at `end` (nanoseconds).

        `owner` (a function or a graph) and `key` identify the operations that ran. The recorder calls `find` once for
        each pair of owner and key.
        """
        moves_by_key = self._moves.setdefault(owner, {})
        if key not in moves_by_key:
            moves_by_key[key] = sorted(find(), key=lambda move: -move.nbytes)[:MAX_MOVES]
        for move in moves_by_key[key]:
            self._ledger.write((EventKind.MOVE, API, move.line), end, end, move.nbytes, detail=move.detail)


def find_moves(ledger: Ledger, operations: Iterable[Any], devices: Iterable[str]) -> Iterator[GraphMove]:
    """Yield a move for each floating-point input that another device produces.

    Skip operations on unknown devices.
    """
    known_devices = {_short_name(device) for device in devices}
    for number, operation in enumerate(operations):
        if number >= MAX_OPERATIONS:
            return
        target = _device_of(operation, known_devices)
        for tensor in operation.inputs if target else ():
            source = _device_of(tensor.op, known_devices)
            if source and source != target and tensor.dtype.is_floating:
                yield _describe_move(ledger, operation, tensor, source, target)


def required_operations(fetched_operations: Iterable[Any], fed_tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the operations that a session runs for these fetches and feeds."""
    pending, visited = list(fetched_operations), {tensor.op for tensor in fed_tensors}
    while pending:
        operation = pending.pop()
        if operation in visited:
            continue
        visited.add(operation)
        yield operation
        pending += [tensor.op for tensor in operation.inputs]
        pending += operation.control_inputs


def _device_of(operation: Any, known_devices: set[str]) -> str:
    """Return the device that the script requests or TensorFlow certainly chooses; "" if unknown."""
    requested = _short_name(operation.device)
    if not requested and operation.type in _GPU_OPERATIONS and "GPU:0" in known_devices:
        return "GPU:0"
    return requested if requested in known_devices else ""


def _short_name(device: str) -> str:
    """Return the end of a device name, such as `GPU:0`. `GPU:*` becomes `GPU:0`."""
    return device.rpartition("device:")[2].replace("*", "0")


def _describe_move(ledger: Ledger, operation: Any, tensor: Any, source: str, target: str) -> GraphMove:
    nbytes = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    detail = {"op": operation.type, "source": source, "target": target, "dtype": tensor.dtype.name, "shape": shape}
    frames = ((frame.filename, frame.lineno, frame.name) for frame in reversed(list(operation.traceback)))
    return GraphMove(nbytes, detail | {"timed": False}, ledger.lines.first_user_line(frames))
