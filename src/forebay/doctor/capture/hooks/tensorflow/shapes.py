"""Shapes that XLA compiles for: inside one traced function, anew for each of them, which TensorFlow tells nobody."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from tensorflow.python.util import nest

from forebay.doctor.capture.hooks.calls import Call
from forebay.doctor.capture.hooks.tensorflow.values import EagerTensor

__all__ = ["Shapes"]

Shape = tuple[int, ...]


class Shapes:
    """Remembers what each function of XLA's was called with."""

    def __init__(self) -> None:
        self._met: WeakKeyDictionary[Any, set[tuple[Shape, ...]]] = WeakKeyDictionary()

    def compiled_for(self, call: Call) -> dict[str, str] | None:
        """Why this call was compiled for, where it was: its shapes are new."""
        function, *args = call.args
        if not getattr(function, "_jit_compile", False):
            return None
        met, shapes = self._met.setdefault(function, set()), _shapes_in((args, call.kwargs))
        if shapes in met:
            return None
        reason = "shape" if met else "first"
        met.add(shapes)
        return {"function": function.name, "reason": reason, "signature": ", ".join(map(str, map(list, shapes)))}


def _shapes_in(arguments: Any) -> tuple[Shape, ...]:
    found = []
    for value in nest.flatten(arguments):
        if type(value) is EagerTensor:
            found.append(value._shape_tuple())
        elif isinstance(value, np.ndarray):
            found.append(value.shape)
    return tuple(found)
