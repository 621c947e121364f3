"""Read-back and finite check for NumPy. Results are on the host; a copy keeps their current values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.adapters.readback.base import CompletedCopy
from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["HostCopier", "all_finite"]


class HostCopier:
    """Copies results at once."""

    def __init__(self, limit: int) -> None: ...

    def start_copy(self, leaves: Sequence[Any]) -> CompletedCopy:
        return CompletedCopy([np.array(leaf) for leaf in leaves])

    def close(self) -> None: ...


def all_finite(leaves: Sequence[Any]) -> np.bool_:
    """Check leaf by leaf, up to the first one that is not finite."""
    return np.bool_(all(_is_finite(np.asarray(leaf)) for leaf in leaves))


def _is_finite(array: Array) -> bool:
    if array.dtype.kind in "biu":
        return True
    try:
        return bool(np.isfinite(array).all())
    except TypeError as error:
        raise SpecError(f"all_finite cannot check values of {array.dtype}. Pass numbers.") from error
