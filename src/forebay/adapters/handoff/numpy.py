"""Hand-off to NumPy: a view of the slot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError

__all__ = ["NumpyHandOff"]


class NumpyHandOff:
    """Views, never the roots themselves: what the user does to the array object must not stay with the slot."""

    name = "numpy"

    def held_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """NumPy holds whatever a source can give."""

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [root.view() for root in roots]

    def on_device(self, index: int | None) -> Any:
        raise DeviceError("NumPy has no arrays on devices: feed 'cupy', or leave device= out.")
