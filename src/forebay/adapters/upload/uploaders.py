"""Uploaders: they copy an array to device memory of the framework, or to new host memory."""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from forebay.core import registry
from forebay.core.handoff import HandOff
from forebay.core.spec import Array, ArraySpec
from forebay.engines.host import HostMemory
from forebay.errors import DeviceError, SpecError
from forebay.pipeline.target import Target, resolve_target

__all__ = ["HostUploader", "Uploader", "as_framework_array", "uploader"]


class Uploader(Protocol):
    """Copies arrays to one device, as arrays of one framework."""

    def upload(self, array: Array) -> Any: ...


class HostUploader:
    """Copies arrays in host memory, so that changes to the copy do not reach the user's array."""

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def upload(self, array: Array) -> Any:
        converted = as_framework_array(array, self._hand_off)
        memory: Any = HostMemory(max(1, converted.nbytes), shared=False).host
        root: Array = np.ndarray(converted.shape, converted.dtype, buffer=memory)
        np.copyto(root, converted)
        return self._hand_off.hand_off([root])[0]


@cache
def uploader(to: str, device: str) -> Uploader:
    """Return the uploader for a framework's device. "auto" is the framework's GPU if it finds one, else the CPU."""
    found = _uploader_for(resolve_target(_default_device(to) if device == "auto" else device, to))
    if to == "tensorflow":
        found = import_module("forebay.adapters.upload.tensorflow").EagerScopeUploader(found)
    return found


def _uploader_for(target: Target) -> Uploader:
    if target.device_handoff is None:
        return HostUploader(target.hand_off)
    module = import_module("forebay.adapters.upload.cuda")
    cuda_uploader: Uploader = module.CudaUploader(target.engine, target.device_handoff)
    return cuda_uploader


def _default_device(to: str) -> str:
    """Return the framework's GPU, also if Forebay cannot upload to it.

    The framework's other tensors are on that GPU, so a silent upload to the CPU would fail later.
    """
    try:
        device_handoff = registry.load_hand_off(to)().for_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{device_handoff.index}"


def as_framework_array(array: Array, hand_off: HandOff, *, narrowed: bool = True) -> Array:
    """Return a C-contiguous array in native byte order, in the dtype that the framework holds.

    It returns the array itself if nothing must change. With `narrowed=False` the dtype stays, for a device that narrows
    faster after the copy.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError("the array is masked, and its mask would be lost. Upload array.filled(value), or the mask too.")
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.framework_dtype(spec.dtype) if narrowed else spec.dtype, order="C")
