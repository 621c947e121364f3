"""Values of eager tensors that come back to Python, by whichever way the user writes it."""

from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.framework import ops

from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.hooks.tensorflow.public_names import asked
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, about, element_of, nbytes_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked
from forebay.doctor.model.events import Kind

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
    for name, api in _READS.items():
        _watch_read(patches, name, api)
    for name in ("asarray", "array"):
        api = f"np.{name}(tensor)"
        patches.replace(np, name, partial(_NumPyFunction, ledger=patches.ledger, api=api), api=api)


def _watch_read(patches: Patches, name: str, api: str) -> None:
    then = partial(_read, patches.ledger, api)
    patches.replace(ops._EagerTensorBase, name, lambda original: hooked(patches.ledger, api, original, then), api=api)


def _read(ledger: Ledger, api: str, start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    """By the user's own line, or by a `fit` on its behalf; what frameworks count with among themselves is no value."""
    tensor, line = args[0], ledger.lines.here()
    if line < 0:
        return
    nbytes = nbytes_of(tensor)
    name, directly = asked(ledger.lines, api)
    if (directly and name == api) or not element_of(tensor._datatype_enum()).counts_with(nbytes):
        api = name if name.startswith("Model.") else api
        ledger.write(Kind.DOWNLOAD, api, line, start, end, nbytes, about(tensor))


class _NumPyFunction(StandIn):
    """A function of NumPy's that takes a tensor's memory as it lies, past all of the tensor's methods.

    Compilers of NumPy code (Numba) know its functions from tables, so it is equal to what it stands for.
    """

    def __init__(self, original: Any, *, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._call = hooked(ledger, api, original, partial(_read, ledger, api))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        call = self._call if args and type(args[0]) is EagerTensor else self._original
        return call(*args, **kwargs)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _NumPyFunction):
            return other._original is self._original
        return other is self._original or NotImplemented

    def __hash__(self) -> int:
        return hash(self._original)
