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

__all__ = ["HostUploader", "Uploader", "as_framework_array", "uploader_for"]


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
        np.copyto(copy, converted)
        return self._hand_off.hand_off([copy])[0]


@cache
def uploader_for(to: str, device: str) -> Uploader:
    """Return the uploader for a device and for the framework named `to`.

    The device "auto" is the framework's default GPU, or the CPU if the framework finds no GPU.
    """
    uploader = _make_uploader(resolve_target(_default_device(to) if device == "auto" else device, to))
    if to == "tensorflow":
        uploader = import_module("forebay.adapters.upload.tensorflow").EagerScopeUploader(uploader)
    return uploader


def _make_uploader(target: Target) -> Uploader:
    if target.device_handoff is None:
        return HostUploader(target.hand_off)
    module = import_module("forebay.adapters.upload.cuda")
    cuda_uploader: Uploader = module.CudaUploader(target.engine, target.device_handoff)
    return cuda_uploader


def _default_device(to: str) -> str:
    """Return the framework's default GPU, or "cpu" if the framework finds no GPU.

    Return the GPU even if Forebay cannot upload to it, so that the upload raises an error. After an upload to the CPU,
    the script would fail later, because its other tensors are on the GPU.
    """
    try:
        device_handoff = registry.load_hand_off(to)().for_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{device_handoff.index}"


def as_framework_array(array: Array, hand_off: HandOff, *, narrows: bool = True) -> Array:
    """Return a C-contiguous array in native byte order and in the framework's dtype.

    Return the same array if it has these properties. With `narrows=False` the dtype stays the same: a GPU narrows
    64-bit numbers faster, after the upload.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            "the array is masked, and its mask would be lost. Upload array.filled(value), or array.data and array.mask."
        )
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.framework_dtype(spec.dtype) if narrows else spec.dtype, order="C")
