"""The hand-off to NumPy: arrays that are views of slot memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError

__all__ = ["NumpyHandOff"]


class NumpyHandOff:
    """Hands off a view of each root.

    The user may change the view, for example its shape. The root stays the same, so the slot can be reused.
    """

    name = "numpy"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Accept every dtype, because sources return NumPy dtypes."""

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [root.view() for root in roots]

    def for_device(self, index: int | None) -> Any:
        raise DeviceError("NumPy has no arrays on devices. Use feed('cupy'), or omit device=.")
