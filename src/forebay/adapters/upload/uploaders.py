"""Where an upload goes: into device memory of the framework's own pool, or into fresh host memory."""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from forebay.core import registry
from forebay.core.handoff import HandOff
from forebay.core.spec import Array, ArraySpec
from forebay.engines.host import HostMemory
from forebay.errors import DeviceError, SpecError
from forebay.pipeline.target import Place, find_place

__all__ = ["HostUploader", "Uploader", "as_wired", "uploader"]


class Uploader(Protocol):
    """Copies an array to one place, as one framework's own array."""

    def upload(self, array: Array) -> Any: ...


class HostUploader:
    """A copy in host memory: whatever is done to the framework's array, the user's stays as it is."""

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def upload(self, array: Array) -> Any:
        wired = as_wired(array, self._hand_off)
        memory: Any = HostMemory(max(1, wired.nbytes), shared=False).host
        root: Array = np.ndarray(wired.shape, wired.dtype, buffer=memory)
        np.copyto(root, wired)
        return self._hand_off.hand_off([root])[0]


@cache
def uploader(to: str, device: str) -> Uploader:
    """The way to a framework's device: "auto" is its own choice of GPU if it sees one, else the CPU."""
    made = _uploader_at(find_place(_first_seen(to) if device == "auto" else device, to))
    if to == "tensorflow":
        made = import_module("forebay.adapters.upload.tensorflow").OutsideFunctions(made)
    return made


def _uploader_at(place: Place) -> Uploader:
    if place.side is None:
        return HostUploader(place.hand_off)
    made: Uploader = import_module("forebay.adapters.upload.cuda").CudaUploader(place.engine, place.side)
    return made


def _first_seen(to: str) -> str:
    """A GPU that the framework works on is never passed over for want of a way there: tensors of both must meet."""
    try:
        side = registry.hand_off(to)().on_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{side.index}"


def as_wired(array: Array, hand_off: HandOff, *, narrowed: bool = True) -> Array:
    """The array as the framework will hold it: its type, this machine's byte order, compact. Itself where it is so.

    Not `narrowed`, it keeps its type, for a device that is quicker at narrowing it when it is there.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError("the array is masked, and its mask would be lost: upload array.filled(value), or the mask too.")
    spec = ArraySpec(array.shape, array.dtype)
    spec.check("array")
    hand_off.check([spec], ["array"])
    return np.asarray(array, hand_off.held_dtype(spec.dtype) if narrowed else spec.dtype, order="C")
