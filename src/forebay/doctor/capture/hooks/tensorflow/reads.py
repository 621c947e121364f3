"""Values of eager tensors that come back to Python, by whichever way the user writes it."""

from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
from tensorflow.python.framework import ops

from forebay.doctor.capture.hooks.calls import Call, quietly, watch_call
from forebay.doctor.capture.hooks.stand_in import StandIn
from forebay.doctor.capture.hooks.tensorflow.names import asked
from forebay.doctor.capture.hooks.tensorflow.values import EagerTensor, about, element_of, nbytes_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.events import Kind

__all__ = ["watch_reads"]

# All of these end in `_numpy`, where `print(variable)` arrives directly.
_READS = {
    "numpy": "Tensor.numpy",
    "__float__": "float(tensor)",
    "__int__": "int(tensor)",
    "__bool__": "bool(tensor)",
    "__index__": "index(tensor)",
    "__complex__": "complex(tensor)",
    "__format__": "format(tensor)",
    "__repr__": "print(tensor)",
    "__str__": "print(tensor)",
    "__array__": "np.asarray(tensor)",
    "_numpy": "Tensor.numpy",
}


def watch_reads(patches: Patches) -> None:
    ledger = patches.ledger
    for name, api in _READS.items():
        watch_call(patches, ops._EagerTensorBase, name, api=api, then=partial(_read, ledger, api))
    for name in ("asarray", "array"):
        api = f"np.{name}(tensor)"
        patches.replace(np, name, partial(_NumPyFunction, ledger=ledger, api=api), api=api)


def _read(ledger: Ledger, api: str, call: Call) -> None:
    """By the user's own line, or by a `fit` on its behalf; what frameworks count with among themselves is no value."""
    tensor, line = call.args[0], ledger.lines.here()
    if line < 0:
        return
    nbytes = nbytes_of(tensor)
    name, directly = asked(ledger.lines, api)
    if (directly and name == api) or not element_of(tensor._datatype_enum()).counts_with(nbytes):
        api = name if name.startswith("Model.") else api
        ledger.add(Kind.DOWNLOAD, api, call.start, end=call.end, nbytes=nbytes, detail=about(tensor), line=line)


class _NumPyFunction(StandIn):
    """A function of NumPy's that takes a tensor's memory as it lies, past all of the tensor's methods.

    Compilers of NumPy code (Numba) know its functions from tables, so it is equal to what it stands for.
    """

    def __init__(self, original: Any, *, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._ledger, self._api = ledger, api

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not EagerTensor or not self._ledger.enter():
            return self._original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = self._original(*args, **kwargs)
            call = Call(start, perf_counter_ns(), result, args, kwargs)
            quietly(self._ledger, self._api, _read, self._ledger, self._api, call)
            return result
        finally:
            self._ledger.leave()

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _NumPyFunction):
            return other._original is self._original
        return other is self._original or NotImplemented

    def __hash__(self) -> int:
        return hash(self._original)
