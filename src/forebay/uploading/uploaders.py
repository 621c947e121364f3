"""Where an upload goes: into device memory of the framework's own pool, or into fresh host memory."""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from forebay import names
from forebay.engines.host import HostMemory
from forebay.errors import DeviceError
from forebay.handoff.base import HandOff
from forebay.place import Place, find_place
from forebay.spec import Array
from forebay.uploading.wired import as_wired

__all__ = ["HostUploader", "Uploader", "uploader"]


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
        made = import_module("forebay.uploading.tensorflow").OutsideFunctions(made)
    return made


def _uploader_at(place: Place) -> Uploader:
    if place.side is None:
        return HostUploader(place.hand_off)
    made: Uploader = import_module("forebay.uploading.cuda").CudaUploader(place.engine, place.side)
    return made


def _first_seen(to: str) -> str:
    """A GPU that the framework works on is never passed over for want of a way there: tensors of both must meet."""
    try:
        side = names.hand_off(to)().on_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{side.index}"
