"""An array as a framework will hold it."""

import numpy as np

from forebay.errors import SpecError
from forebay.handoff.base import HandOff
from forebay.spec import Array, ArraySpec

__all__ = ["as_wired"]


def as_wired(array: Array, hand_off: HandOff, *, narrowed: bool = True) -> Array:
    """The array as the framework will hold it: its type, this machine's byte order, compact. Itself where it is so.

    Not `narrowed`, it keeps its type, for a device that is quicker at narrowing it when it is there.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError("the array is masked, and its mask would be lost: upload array.filled(value), or the mask too.")
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.held_dtype(spec.dtype) if narrowed else spec.dtype, order="C")
