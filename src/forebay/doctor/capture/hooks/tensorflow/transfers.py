"""What an operation brings over: arrays that it was given, and tensors that lie on another device than its own."""

from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any

from tensorflow.python.eager import context

from forebay.doctor.capture.hooks.tensorflow.public_names import asked
from forebay.doctor.capture.hooks.tensorflow.tensors import (
    EagerTensor,
    about,
    element_of,
    key_of_array,
    key_of_tensor,
    nbytes_of,
    place_of,
)
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["Crossings"]

LARGEST_TRIED = 1 << 28  # bytes: a larger array is not converted a second time to see how long it takes
IDENTITY = "Identity"  # says in so many words that a tensor is to be elsewhere


class Crossings:
    """Writes down what operations, watched under one name, brought over."""

    def __init__(self, patches: Patches, api: str) -> None:
        self._patches, self._api = patches, api
        self._rates: dict[tuple[int, str], float] = {}  # nanoseconds a byte, as tried once at a line

    def given(self, name: str, array: Any, result: Any, line: int, start: int, end: int) -> None:
        """An array was converted on the way, by code that is not Python's: how long that takes was tried once."""
        if not array.nbytes or element_of(array.dtype).counts_with(array.nbytes):
            return
        ledger = self._patches.ledger
        api = asked(ledger.lines, self._api).name
        self._patches.spoken[api] = self._api
        output = _first(result)
        kind = array.dtype.name
        detail: dict[str, Any] = {"device": place_of(output)} if output is not None else {}
        detail |= {"dtype": kind, "shape": list(array.shape), "from_dtype": kind, "key": key_of_array(array)}
        if array.nbytes <= LARGEST_TRIED:
            end = min(end, start + int(array.nbytes * self._rate(array, line, name)))
        ledger.add(Kind.UPLOAD, api, start, end=end, nbytes=array.nbytes, detail=detail, line=line)

    def moved(self, name: str, inputs: Iterable[Any], result: Any, line: int, start: int, end: int) -> None:
        output = _first(result)
        if output is None:
            return
        target = output.device
        away = [tensor for tensor in inputs if tensor.device != target and not _is_taken_from_host(tensor)]
        if not away:
            return
        kind, api, detail = _described(name, away[0], output)
        nbytes = sum(map(nbytes_of, away))
        self._patches.spoken[api] = self._api
        self._patches.ledger.add(kind, api, start, end=end, nbytes=nbytes, detail=detail, line=line)

    def _rate(self, array: Any, line: int, name: str) -> float:
        if (line, name) not in self._rates:
            start = perf_counter_ns()
            EagerTensor(array, context.context().device_name, None)
            self._rates[line, name] = (perf_counter_ns() - start) / array.nbytes
        return self._rates[line, name]


def _first(result: Any) -> Any:
    if type(result) is EagerTensor:
        return result
    return next((each for each in result if type(each) is EagerTensor), None) if isinstance(result, list) else None


def _is_taken_from_host(tensor: Any) -> bool:
    element = element_of(tensor._datatype_enum())
    return not element.is_data or element.counts_with(nbytes_of(tensor))


def _described(name: str, tensor: Any, output: Any) -> tuple[Kind, str, dict[str, Any]]:
    """A tensor sent with `tf.identity` was uploaded or read; any other operation made it move."""
    source, target = place_of(tensor), place_of(output)
    if name == IDENTITY and target.startswith("CPU") and not source.startswith("CPU"):
        return Kind.DOWNLOAD, "tf.identity", about(tensor)
    if name == IDENTITY:
        return Kind.UPLOAD, "tf.identity", about(output) | {"source": source, "key": key_of_tensor(tensor)}
    detail = {"op": name, "source": source, "target": target}
    return Kind.MOVE, "tf.device", detail | {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}
