"""Uploaders that copy NumPy arrays to framework arrays, on a GPU or the host."""

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
    """Copies arrays to new host memory, so the copy is independent of the user's array."""

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def upload(self, array: Array) -> Any:
        converted = as_framework_array(array, self._hand_off)
        memory: Any = HostMemory(max(1, converted.nbytes), shared=False).host
        copy: Array = np.ndarray(converted.shape, converted.dtype, buffer=memory)
        np.copyto(copy, converted)
        return self._hand_off.hand_off([copy])[0]


@cache
def uploader(to: str, device: str) -> Uploader:
    """Return the uploader to a device, for the framework named `to`.

    The device "auto" is the framework's default GPU, or the CPU if the framework finds no GPU.
    """
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
    """Return the framework's default GPU, or "cpu" if the framework finds no GPU.

    Return the GPU even if Forebay cannot upload to it: the upload then raises an error at once. With an upload to the
    CPU, the script would fail later, because its other tensors are on the GPU.
    """
    try:
        device_handoff = registry.load_hand_off(to)().for_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{device_handoff.index}"


def as_framework_array(array: Array, hand_off: HandOff, *, narrowed: bool = True) -> Array:
    """Return a C-contiguous array in native byte order and in the framework's dtype.

    If the array is like that already, return it without a copy. With `narrowed=False` the dtype stays the same: a GPU
    converts 64-bit numbers to 32 bits faster after the copy.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            "the array is masked, and its mask would be lost. Upload array.filled(value), or array.data and array.mask."
        )
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.framework_dtype(spec.dtype) if narrowed else spec.dtype, order="C")
