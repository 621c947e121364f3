"""Hand-off to NumPy: views of the slot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError

__all__ = ["NumpyHandOff"]


class NumpyHandOff:
    """Hands out views and never the roots, so that changes to an array object do not stay with the slot."""

    name = "numpy"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Accept every dtype; NumPy holds all that a source can return."""

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [root.view() for root in roots]

    def for_device(self, index: int | None) -> Any:
        raise DeviceError("NumPy has no arrays on devices. Use feed('cupy'), or omit device=.")
