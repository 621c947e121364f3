"""Results in NumPy: they are here, and are copied so that they stay as they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.adapters.readback.base import Arrived
from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["Fetcher", "all_finite"]


class Fetcher:
    """A copy, at once."""

    def __init__(self, limit: int) -> None: ...

    def fetch(self, leaves: Sequence[Any]) -> Arrived:
        return Arrived([np.array(leaf) for leaf in leaves])

    def close(self) -> None: ...


def all_finite(leaves: Sequence[Any]) -> np.bool_:
    """Leaf by leaf, up to the first that is not."""
    return np.bool_(all(_finite(np.asarray(leaf)) for leaf in leaves))


def _finite(array: Array) -> bool:
    if array.dtype.kind in "biu":
        return True
    try:
        return bool(np.isfinite(array).all())
    except TypeError as error:
        raise SpecError(f"values of {array.dtype} are neither finite nor infinite: pass numbers.") from error
