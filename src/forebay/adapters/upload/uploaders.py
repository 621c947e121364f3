"""The uploader protocol, the uploader to host memory, and the conversion that all uploaders share."""

from typing import Any, Protocol

import numpy as np

from forebay.core.handoff import HandOff
from forebay.core.progress_line import ProgressLine
from forebay.core.spec import Array, ArraySpec, format_nbytes
from forebay.engines.host import HostMemory
from forebay.errors import SpecError

__all__ = ["HostUploader", "Uploader", "as_framework_array"]


class Uploader(Protocol):
    """Copies arrays to one device, as arrays of one framework."""

    def upload(self, array: Array) -> Any: ...


class HostUploader:
    """Copies arrays to new host memory, so that later changes do not affect the copies."""

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def upload(self, array: Array) -> Any:
        converted = as_framework_array(array, self._hand_off)
        memory: Any = HostMemory(max(1, converted.nbytes), shared=False).host
        copy: Array = np.ndarray(converted.shape, converted.dtype, buffer=memory)
        with ProgressLine(f"copying {format_nbytes(converted.nbytes)}"):
            np.copyto(copy, converted)
        return self._hand_off.hand_off([copy])[0]


def as_framework_array(array: Array, hand_off: HandOff, *, narrows: bool = True) -> Array:
    """Return a C-contiguous array in native byte order and in the framework's dtype.

    Return the array itself if it has these properties already. With `narrows=False`, keep its dtype, because a GPU
    narrows 64-bit numbers faster after the upload.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            "the array is masked, and its mask would be lost. Upload array.filled(value), or array.data and array.mask."
        )
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.framework_dtype(spec.dtype) if narrows else spec.dtype, order="C")
