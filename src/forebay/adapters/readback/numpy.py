"""Read-back and check for finite values for NumPy arrays and Python numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.adapters.readback.base import CompletedCopy
from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["HostCopier", "all_finite"]


class HostCopier:
    """Copies arrays immediately, so that later changes of the arrays do not change the results."""

    def __init__(self, max_copies: int) -> None: ...  # unused: each copy is complete at once

    def start_copy(self, leaves: Sequence[Any]) -> CompletedCopy:
        return CompletedCopy([np.array(leaf) for leaf in leaves])

    def close(self) -> None: ...


def all_finite(leaves: Sequence[Any]) -> np.bool_:
    """Return whether all values are finite.

    Stop at the first leaf with a value that is not finite.
    """
    return np.bool_(all(_is_finite(np.asarray(leaf)) for leaf in leaves))


def _is_finite(array: Array) -> bool:
    if array.dtype.kind in "biu":
        return True
    try:
        return bool(np.isfinite(array).all())
    except TypeError as error:
        raise SpecError(f"all_finite cannot check values of {array.dtype}. Pass numbers.") from error
