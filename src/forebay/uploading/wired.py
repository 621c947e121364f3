"""An array as a framework will hold it."""

import numpy as np

from forebay.handoff.base import HandOff
from forebay.spec import Array, ArraySpec

__all__ = ["as_wired"]


def as_wired(array: Array, hand_off: HandOff) -> Array:
    """The array as the framework will hold it: its type, this machine's byte order, compact. Itself where it is so."""
    spec = ArraySpec(array.shape, array.dtype)
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.wire_dtype(spec.dtype), order="C")
