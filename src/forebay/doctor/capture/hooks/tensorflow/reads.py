"""Hooks for read-backs of eager tensors to Python and NumPy."""

from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.framework import ops

from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.hooks.tensorflow.public_names import find_public_call
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, describe_tensor, element_type_of, nbytes_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import OnReturn, Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = ["NUMPY_JOINS", "NUMPY_READS", "hook_reads"]

# Methods of tensors that read values back -> API name in events. All of them call `_numpy`, and only the
# outermost call is recorded. `_numpy` has its own hook because `print(variable)` calls it directly.
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
# NumPy functions that read a tensor through the buffer protocol, so that no method of the tensor runs. NumPy's ufuncs,
# such as `np.abs`, are not listed: a proxy would hide their type `np.ufunc`, which other libraries check.
NUMPY_READS = (
    *("asarray", "array", "asanyarray", "ascontiguousarray", "copy"),
    *("all", "any", "amax", "amin", "argmax", "argmin", "argsort", "average", "clip", "cumsum", "max", "mean"),
    *("median", "min", "percentile", "prod", "quantile", "ravel", "reshape", "round", "sort", "squeeze", "std", "sum"),
    *("transpose", "unique", "var", "nanmean", "nansum", "allclose", "array_equal", "isclose"),
)
NUMPY_JOINS = ("concatenate", "stack", "vstack", "hstack")  # their first argument is a list of arrays


def hook_reads(patches: Patches) -> None:
    for name, api in _READS.items():
        patches.replace(ops._EagerTensorBase, name, partial(_hook_method, patches.ledger, api), api=api)
    for name in (*NUMPY_READS, *NUMPY_JOINS):
        api = f"np.{name}(tensor)" if name in NUMPY_READS else f"np.{name}(tensors)"
        patches.replace(np, name, partial(_NumPyReadProxy, ledger=patches.ledger, api=api), api=api)


def _hook_method(ledger: Ledger, api: str, original: Any) -> Any:
    return make_hook(ledger, api, original, _make_writer(ledger, api))


def _make_writer(ledger: Ledger, api: str) -> OnReturn:
    """Return a function that records a read-back.

    It skips small integer tensors unless the line of the script itself reads them, because frameworks read many shapes
    and indices.
    """

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        tensors, line = _tensors_of(args), ledger.lines.current_line()
        if line < 0:  # no line of the script made this call
            return
        tensor, nbytes = tensors[0], sum(map(nbytes_of, tensors))
        name, is_direct, _ = find_public_call(ledger.lines, api)
        if (is_direct and name == api) or not element_type_of(tensor._datatype_enum()).is_bookkeeping(nbytes):
            event_api = name if name.startswith("Model.") else api  # `Model.fit` itself reads values, such as the loss
            ledger.write((EventKind.DOWNLOAD, event_api, line), start, end, nbytes, detail=describe_tensor(tensor))

    return write


def _tensors_of(args: tuple[Any, ...]) -> list[Any]:
    """Return the tensors that a call reads; empty if it reads none.

    The first argument is a tensor, or a list that begins with a tensor.
    """
    first = args[0] if args else None
    if type(first) is EagerTensor:
        return [first]
    if type(first) in (list, tuple) and first and type(first[0]) is EagerTensor:
        return [item for item in first if type(item) is EagerTensor]
    return []


class _NumPyReadProxy(FunctionProxy):
    """Replaces a NumPy function that may read a tensor through the buffer protocol.

    Such a read calls no method of the tensor. The proxy compares equal to the original, because Numba looks NumPy
    functions up in dicts.
    """

    def __init__(self, original: Any, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._call = make_hook(ledger, api, original, _make_writer(ledger, api))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        call = self._call if _tensors_of(args) else self._original
        return call(*args, **kwargs)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _NumPyReadProxy):
            return other._original is self._original
        return other is self._original or NotImplemented

    def __hash__(self) -> int:
        return hash(self._original)
