"""The hand-off to TensorFlow for devices to which TensorFlow itself copies each batch."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from forebay.adapters.handoff.tensorflow import TensorflowHandOff
from forebay.errors import DeviceError

__all__ = ["TensorflowCopyHandOff", "make_copy_hand_off"]

# TensorFlow's name for each kind of device; GPUs of all vendors have the name "GPU".
_KINDS = {"mps": "GPU", "metal": "GPU", "rocm": "GPU", "hip": "GPU"}


def make_copy_hand_off(device: str) -> "TensorflowCopyHandOff | None":
    """Return the hand-off for a device to which TensorFlow copies batches, such as "xpu:0".

    For "auto", return None if TensorFlow has only CPUs and NVIDIA GPUs.
    """
    if device == "auto":
        kinds = [each.device_type for each in tf.config.get_visible_devices() if each.device_type != "CPU"]
        kinds = [kind for kind in kinds if kind != "GPU" or not tf.test.is_built_with_cuda()]
        return TensorflowCopyHandOff(f"{kinds[0]}:0") if kinds else None
    kind, _, index = device.partition(":")
    name = f"{_KINDS.get(kind, kind.upper())}:{index or 0}"
    found = [each.name.rpartition("device:")[2] for each in tf.config.list_logical_devices()]
    if name not in found:
        raise DeviceError(
            f"TensorFlow {tf.__version__} cannot use device={device!r}. Its devices: {', '.join(found)}. Choose "
            "'auto', 'cpu', 'cuda' or a device that TensorFlow has."
        )
    return TensorflowCopyHandOff(name)


class TensorflowCopyHandOff(TensorflowHandOff):
    """Hands off copies of batches on a device of TensorFlow.

    While TensorFlow still reads a root, it holds a reference to the root, so Forebay does not reuse the slot.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        with tf.device(self.device):
            return [tf.identity(tf.constant(root)) for root in roots]
