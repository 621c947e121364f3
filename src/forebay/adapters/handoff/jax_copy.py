"""The hand-off to JAX for devices to which JAX copies batches, such as TPUs.

Forebay has no engine for these devices, so it fills batches in host memory.
"""

from collections.abc import Sequence
from typing import Any

import jax

from forebay.adapters.handoff.jax import JaxHandOff
from forebay.errors import DeviceError

__all__ = ["JaxCopyHandOff", "make_copy_hand_off"]

_PLATFORMS = {"mps": "METAL", "hip": "rocm"}  # name of a device in PyTorch -> name of its platform in JAX


def make_copy_hand_off(device: str) -> "JaxCopyHandOff | None":
    """Return the hand-off for a device to which JAX copies batches, such as "tpu:1".

    For "auto", return None if JAX uses the CPU or an NVIDIA GPU by default.
    """
    if device == "auto":
        default = jax.devices()[0]
        return None if default.platform == "cpu" or is_nvidia(default) else JaxCopyHandOff(default)
    kind, _, index = device.partition(":")
    try:
        devices = jax.devices(_PLATFORMS.get(kind, kind))
        return JaxCopyHandOff(devices[int(index or 0)])
    except (RuntimeError, IndexError, ValueError) as error:
        known = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise DeviceError(
            f"JAX {jax.__version__} cannot use device={device!r}. Its devices: {known}. Choose 'auto', 'cpu', 'cuda' "
            "or a device that JAX has."
        ) from error


def is_nvidia(device: Any) -> bool:
    """Return whether a device is an NVIDIA GPU.

    GPUs of all vendors can have the platform "gpu". Only the platform version names ROCm, which means AMD.
    """
    return device.platform in ("gpu", "cuda") and "rocm" not in str(device.client.platform_version).lower()


class JaxCopyHandOff(JaxHandOff):
    """Hands off copies of the batches on a device of JAX.

    JAX keeps a reference to a root until its copy is complete, so Forebay does not reuse the slot before then.
    """

    def __init__(self, device: Any) -> None:
        self.device = device

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [jax.device_put(root, self.device) for root in roots]
