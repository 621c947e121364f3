"""The hand-off to PyTorch for devices to which PyTorch itself copies each batch.

These are GPUs of Apple (`mps`), Intel (`xpu`) and AMD (`rocm`, which PyTorch names `cuda`), and other accelerators that
PyTorch knows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forebay.adapters.handoff.torch import TorchHandOff, to_sparse_on_device
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, SpecError

__all__ = ["TorchCopyHandOff", "make_copy_hand_off"]


def make_copy_hand_off(device: str) -> "TorchCopyHandOff | None":
    """Return the hand-off for a device to which PyTorch copies batches.

    For "auto", return None if PyTorch has no accelerator, or if its accelerator is an NVIDIA GPU.
    """
    name = _find_accelerator() if device == "auto" else device
    if name is None:
        return None
    kind, _, index = name.partition(":")
    if kind in ("rocm", "hip"):
        if torch.version.hip is None:
            raise DeviceError(
                f"device={device!r} needs a ROCm build of PyTorch, but PyTorch {torch.__version__} is another build. "
                "Install a ROCm build, or pass device='cpu'."
            )
        name = f"cuda:{index or 0}"
    try:
        if torch.empty(1, device=name).is_meta:
            raise RuntimeError("tensors on it have no data")
    # Without the backend of the device, PyTorch raises one of these errors; which one depends on the backend.
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError) as error:
        reason = str(error).partition("\n")[0][:200].rstrip(".")
        raise DeviceError(
            f"PyTorch {torch.__version__} cannot use device={device!r}: {reason}. Choose 'auto', 'cpu', 'cuda' or a "
            "device that PyTorch has."
        ) from error
    return TorchCopyHandOff(name)


def _find_accelerator() -> str | None:
    """Return the name of the default accelerator.

    Return None if there is no accelerator, or if it is an NVIDIA GPU.
    """
    if torch.version.hip is not None and torch.cuda.is_available():
        return "rocm"
    if not hasattr(torch, "accelerator") or not torch.accelerator.is_available():  # since PyTorch 2.6
        return None
    kind = torch.accelerator.current_accelerator().type
    return None if kind == "cuda" else str(kind)


class TorchCopyHandOff(TorchHandOff):
    """Hands off copies of batches on a device of PyTorch.

    Slots are in pageable memory, so the copy is complete when `Tensor.to` returns. Forebay may then reuse the slot.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        super().check(specs, names)
        for spec, name in zip(specs, names, strict=True):
            try:
                torch.from_numpy(np.empty(1, spec.dtype)).to(self.device)
            except (TypeError, RuntimeError) as error:
                raise SpecError(
                    f"{name!r} is {spec}, which {self.device} does not support: {str(error)[:200].rstrip('.')}. "
                    "Convert it first, for example with map(fb.cast('float32'))."
                ) from error

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        return to_sparse_on_device(values, columns, counts, width)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [torch.from_numpy(root).to(self.device, copy=True) for root in roots]
