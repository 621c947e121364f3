"""An engine that claims to be a device, and a device hand-off of NumPy arrays."""

from types import SimpleNamespace

from forebay.adapters.handoff.numpy import NumpyHandOff
from forebay.core.array_ops import NumpyArrayOps
from forebay.engines.host import HostEngine

__all__ = ["DeviceLikeEngine", "FakeDeviceHandOff", "ImageHandOff"]


class FakeDeviceHandOff(NumpyHandOff):
    """A device hand-off of NumPy arrays."""

    index = 0
    syncs_on_import = True

    def available(self, free, total):
        return free

    def cast(self, array, dtype):
        return array.astype(dtype, copy=False)


class ImageHandOff(FakeDeviceHandOff):
    """A device hand-off of NumPy arrays that can run augmentations."""

    def array_ops(self):
        return NumpyArrayOps()


class DeviceLikeEngine(HostEngine):
    """An engine with host memory that claims to be a device.

    It has no driver, so use it with rows that a device cannot pull, such as rows that are not contiguous.
    """

    name = "device-like"
    is_device = True

    def __init__(self, device_handoff):
        self.device_handoff = device_handoff
        self.device = SimpleNamespace(memory=lambda: (1 << 30, 1 << 30))
