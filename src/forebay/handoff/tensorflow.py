"""Hand-off to TensorFlow: by DLPack, in the old form without a version, which is the only one it takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.handoff.base import refuse_dtypes
from forebay.spec import ArraySpec

__all__ = ["TensorflowHandOff"]

_from_dlpack = tf.experimental.dlpack.from_dlpack


class TensorflowHandOff:
    """Eager tensors over the slot; NumPy's own exporter holds the root until TensorFlow gives it back."""

    name = "tensorflow"

    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("TensorFlow", specs, names, "biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [_from_dlpack(root.__dlpack__()) for root in roots]
