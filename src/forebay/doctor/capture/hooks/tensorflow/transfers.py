"""Uploads of host data, and tensors that operations move between devices."""

from collections.abc import Iterable
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call
from forebay.doctor.capture.hooks.pieces import pieces_detail
from forebay.doctor.capture.hooks.tensorflow.public_names import find_public_call
from forebay.doctor.capture.hooks.tensorflow.tensors import (
    EagerTensor,
    describe_tensor,
    device_of,
    element_type_of,
    fingerprint_of_array,
    fingerprint_of_tensor,
    nbytes_of,
)
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["Transfers", "hook_uploads"]

API = "tf.convert_to_tensor"
# Public functions with which a script uploads explicitly. Small integers that they upload count as data, not as
# indices.
_EXPLICIT_UPLOADS = frozenset({API, "tf.constant", "tf.cast", "tf.Variable", "tf.identity", "tf.function"})
MAX_TRIAL_NBYTES = 1 << 28  # the doctor does not convert larger arrays again to time the conversion
IDENTITY = "Identity"  # the operation of `tf.identity`, with which a script copies a tensor to a device


def hook_uploads(patches: Patches) -> None:
    """Hook the conversion that all public upload functions call."""
    on_return = partial(_record_conversion, patches)
    name = "convert_to_eager_tensor"
    hook_call(patches, constant_op, name, CallHook(API, on_return, should_record=_is_data))


def _is_data(value: Any, *_: Any, **__: Any) -> bool:
    """Whether to record a conversion. Single numbers are not recorded, because TensorFlow caches them."""
    return isinstance(value, np.ndarray | list | tuple)


def _record_conversion(patches: Patches, call: HookedCall) -> None:
    value, tensor, ledger = call.args[0], call.result, patches.ledger
    line = ledger.lines.current_line()
    if line < 0 or type(tensor) is not EagerTensor:
        return
    api, is_direct, is_operator = find_public_call(ledger.lines, API)
    nbytes = nbytes_of(tensor)
    is_explicit = is_direct and api in _EXPLICIT_UPLOADS
    if not nbytes or (element_type_of(tensor._datatype_enum()).is_bookkeeping(nbytes) and not is_explicit):
        return
    patches.hook_apis[api] = API
    pieces = pieces_detail(value)
    dtype = value.dtype if isinstance(value, np.ndarray) else value[0].dtype if pieces else None
    from_dtype = type(value).__name__ if dtype is None else dtype.name
    detail = describe_tensor(tensor) | {"from_dtype": from_dtype, "key": fingerprint_of_array(value)}
    if detail["dtype"] == from_dtype:  # TensorFlow makes int32 of lists of int64 arrays, but not of one int64 array
        detail |= pieces
    if is_operator:
        detail["implied"] = True
    ledger.write((EventKind.UPLOAD, api, line), call.start, call.end, nbytes, detail=detail)


class Transfers:
    """Records the uploads and moves that operations cause.

    `api` is the API name of the hooked operations.
    """

    def __init__(self, patches: Patches, api: str) -> None:
        self._patches, self._api = patches, api
        self._ns_per_byte: dict[tuple[int, str], float] = {}  # conversion time, by line and operation

    def record_array(self, name: str, array: Any, result: Any, line: int, start: int, end: int) -> None:
        """Record the upload of an array that the operation `name` converted in native code.

        The duration is estimated from one conversion that the doctor measures. If the array is larger than
        MAX_TRIAL_NBYTES, the upload gets the duration of the whole operation.
        """
        if not array.nbytes or element_type_of(array.dtype).is_bookkeeping(array.nbytes):
            return
        ledger = self._patches.ledger
        api = find_public_call(ledger.lines, self._api).name
        self._patches.hook_apis[api] = self._api
        output = _first_tensor(result)
        dtype = array.dtype.name
        detail: dict[str, Any] = {"device": device_of(output)} if output is not None else {}
        detail |= {"dtype": dtype, "shape": list(array.shape), "from_dtype": dtype, "key": fingerprint_of_array(array)}
        if array.nbytes <= MAX_TRIAL_NBYTES:
            end = min(end, start + int(array.nbytes * self._measure_ns_per_byte(array, line, name)))
        ledger.write((EventKind.UPLOAD, api, line), start, end, array.nbytes, detail=detail)

    def record_moves(self, name: str, inputs: Iterable[Any], result: Any, line: int, start: int, end: int) -> None:
        """Record one event for all inputs that are on another device than the result."""
        output = _first_tensor(result)
        if output is None:
            return
        target = output.device
        moved = [tensor for tensor in inputs if tensor.device != target and not _stays_on_host(tensor)]
        if not moved:
            return
        kind, api, detail = _describe_move(name, moved[0], output)
        nbytes = sum(map(nbytes_of, moved))
        self._patches.hook_apis[api] = self._api
        self._patches.ledger.write((kind, api, line), start, end, nbytes, detail=detail)

    def _measure_ns_per_byte(self, array: Any, line: int, name: str) -> float:
        """Return the conversion time per byte, which is measured once for each line and operation."""
        if (line, name) not in self._ns_per_byte:
            start = perf_counter_ns()
            EagerTensor(array, context.context().device_name, None)
            self._ns_per_byte[line, name] = (perf_counter_ns() - start) / array.nbytes
        return self._ns_per_byte[line, name]


def _first_tensor(result: Any) -> Any:
    if type(result) is EagerTensor:
        return result
    return next((item for item in result if type(item) is EagerTensor), None) if isinstance(result, list) else None


def _stays_on_host(tensor: Any) -> bool:
    """Whether TensorFlow keeps a tensor on the host: a handle, indices or a shape."""
    element = element_type_of(tensor._datatype_enum())
    return not element.is_data or element.is_bookkeeping(nbytes_of(tensor))


def _describe_move(name: str, tensor: Any, output: Any) -> tuple[EventKind, str, dict[str, Any]]:
    """Return kind, API name and detail of the event.

    `tf.identity` from a device to the CPU is a read-back, and from the CPU to a device an upload. Any other operation,
    and a copy between two devices of one kind, is a move.
    """
    source, target = device_of(tensor), device_of(output)
    from_host, to_host = source.startswith("CPU"), target.startswith("CPU")
    if name == IDENTITY and to_host and not from_host:
        return EventKind.DOWNLOAD, "tf.identity", describe_tensor(tensor)
    if name == IDENTITY and from_host and not to_host:
        detail = describe_tensor(output) | {"source": source, "key": fingerprint_of_tensor(tensor)}
        return EventKind.UPLOAD, "tf.identity", detail
    detail = {"op": name, "source": source, "target": target}
    return EventKind.MOVE, "tf.device", detail | {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}
