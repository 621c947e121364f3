"""The hand-off to NumPy: arrays that are views of slot memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.handoff import compact_rows
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

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        from scipy.sparse import csr_array  # sparse rows come from SciPy, so it is installed

        return csr_array(compact_rows(values, columns, counts), shape=(len(values), width))

    def for_device(self, index: int | None) -> Any:
        raise DeviceError("NumPy has no arrays on devices. Use feed('cupy'), or omit device=.")
