"""PyTorch: what crosses, what waits, where steps end and who makes batches. `torch.compile` stays what it is."""

from time import perf_counter_ns
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from forebay.doctor.capture.keys import key_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.events import Kind

__all__ = ["install"]

_READS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "__array__", "__repr__")
_SPOKEN = {
    "__bool__": "bool(tensor)",
    "__float__": "float(tensor)",
    "__int__": "int(tensor)",
    "__repr__": "print(tensor)",
}
_SPOKEN |= {"__index__": "index(tensor)", "__array__": "np.asarray(tensor)"}


def install(patches: Patches) -> None:
    for name in _READS:
        patches.watch(torch.Tensor, name, Kind.DOWNLOAD, _SPOKEN.get(name, f"Tensor.{name}"), _downloaded)
    for name in ("to", "cuda"):
        patches.watch(torch.Tensor, name, Kind.UPLOAD, f"Tensor.{name}", _moved)
    for name in ("tensor", "as_tensor", "from_numpy"):
        patches.watch(torch, name, Kind.UPLOAD, f"torch.{name}", _converted)
    patches.watch(torch.cuda, "synchronize", Kind.SYNC, "torch.cuda.synchronize", lambda result, *_, **__: (0, None))
    _watch_steps(patches)
    _watch_loader(patches)


def _downloaded(result: Any, tensor: Any, *_: Any, **__: Any) -> tuple[int, dict[str, Any] | None] | None:
    if type(tensor) is not torch.Tensor and not isinstance(tensor, torch.Tensor):
        return None
    return tensor.nbytes, {"device": str(tensor.device), "dtype": str(tensor.dtype), "shape": list(tensor.shape)}


def _moved(result: Any, tensor: Any, *_: Any, **__: Any) -> tuple[int, dict[str, Any] | None] | None:
    """Only what really left for another device."""
    if not isinstance(tensor, torch.Tensor) or result.device == tensor.device:
        return None
    detail = _about(result)
    if tensor.device.type == "cpu":
        detail |= {"pinned": tensor.is_pinned() if torch.cuda.is_initialized() else False, "key": _key(tensor)}
    return tensor.nbytes, detail


def _converted(result: Any, data: Any, *_: Any, **__: Any) -> tuple[int, dict[str, Any] | None] | None:
    return result.nbytes, _about(result) | {"key": _key(result) if result.device.type == "cpu" else ""}


def _about(tensor: Any) -> dict[str, Any]:
    return {"device": str(tensor.device), "dtype": str(tensor.dtype), "shape": list(tensor.shape)}


def _key(tensor: Any) -> str:
    try:
        return key_of(tensor.detach().numpy())
    except (TypeError, RuntimeError):
        return ""


def _watch_steps(patches: Patches) -> None:
    """An optimizer's step ends a training step."""
    ledger = patches.ledger

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if ledger.on:
            ledger.add(Kind.STEP, "optimizer.step", perf_counter_ns())

    patches.undo_with(register_optimizer_step_post_hook(stepped).remove, api="optimizer.step")


def _watch_loader(patches: Patches) -> None:
    patches.watch(dataloader._BaseDataLoaderIter, "__next__", Kind.INPUT, "DataLoader", _loaded(patches.ledger))


def _loaded(ledger: Ledger) -> Any:
    def describe(result: Any, iterator: Any) -> tuple[int, dict[str, Any] | None]:
        workers = getattr(iterator, "_num_workers", None)
        return 0, {"workers": workers, "pinned": bool(getattr(iterator, "_pin_memory", False))}

    return describe
