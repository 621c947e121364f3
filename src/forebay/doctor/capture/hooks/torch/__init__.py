"""PyTorch: what crosses, what waits, who makes batches, what is compiled and where steps end. Compiled stays compiled.

Not seen, because only a hook on every operation would see it: an operation that mixes devices by itself, and those that
wait inside (`unique`, `torch.where(mask)`); `torch.Tensor(data)`; what a loop draws from a generator of its own; rows
that are made in a loader's workers. A compiled function that makes tensors out of the host's data (`torch.tensor`) is
compiled once more when the hooks are gone, since its guards know `torch.tensor` by its address.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from forebay.doctor.capture.hooks.torch import tensors
from forebay.doctor.capture.hooks.torch.compile import watch_compiled
from forebay.doctor.capture.hooks.torch.dataloader import watch_data
from forebay.doctor.capture.hooks.torch.optimizer_steps import watch_steps
from forebay.doctor.capture.hooks.torch.watcher import Describe, Found, Watched, Watcher
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["install"]

# Methods of tensors that bring something back, as they are written, and what they do.
_READS: dict[str, tuple[str, Describe]] = {
    "item": ("Tensor.item", tensors.read),
    "tolist": ("Tensor.tolist", tensors.read),
    "numpy": ("Tensor.numpy", tensors.viewed),
    "cpu": ("Tensor.cpu", tensors.viewed),
    "__array__": ("np.asarray(tensor)", tensors.viewed),
    "__bool__": ("bool(tensor)", tensors.read),
    "__float__": ("float(tensor)", tensors.read),
    "__int__": ("int(tensor)", tensors.read),
    "__index__": ("index(tensor)", tensors.read),
    "__complex__": ("complex(tensor)", tensors.read),
    "__repr__": ("print(tensor)", tensors.printed),
    "__format__": ("format(tensor)", tensors.printed),
}
_WAITS = ("nonzero", "masked_select", "equal", "allclose")
_CONVERSIONS = ("tensor", "as_tensor", "from_numpy", "asarray")
_INDEXING: tuple[tuple[str, str, Describe], ...] = (
    ("__getitem__", "tensor[index]", tensors.indexed),
    ("__setitem__", "tensor[index] = value", tensors.assigned),
)
_PLAIN = frozenset({int, float, bool, complex, slice, type(None), type(...)})  # neither mask nor array: nothing crosses


def install(patches: Patches) -> None:
    watcher = Watcher(patches)
    for what, watch in _ALL.items():
        with watcher.quietly(what):  # one that another version has no place for does not take the others with it
            watch(watcher)


def _watch_tensors(watcher: Watcher) -> None:
    for name, (api, describe) in _READS.items():
        watcher.watch(torch.Tensor, name, api, describe)
    for name in ("to", "cuda"):
        watcher.watch(torch.Tensor, name, f"Tensor.{name}", tensors.moved)
    watcher.watch(torch.Tensor, "copy_", "Tensor.copy_", tensors.copied)
    for name in _CONVERSIONS:
        watcher.watch(torch, name, f"torch.{name}", tensors.converted)
    for name in _WAITS:
        watcher.watch(torch.Tensor, name, f"Tensor.{name}", tensors.waited)
        watcher.watch(torch, name, f"torch.{name}", tensors.waited)
    for name, api, describe in _INDEXING:
        watcher.replace(torch.Tensor, name, api, partial(_Indexing, api=api, describe=describe))


class _Indexing(Watched):
    """Tensors are indexed often, and mostly by what needs no look at all."""

    def __call__(self, tensor: Any, /, *index_and_value: Any) -> Any:
        last = index_and_value[-1]
        if type(last) in _PLAIN or (type(last) is tuple and _PLAIN.issuperset(map(type, last))):
            return self._original(tensor, *index_and_value)
        return self._call(tensor, *index_and_value)


def _watch_waits(watcher: Watcher) -> None:
    watcher.watch(torch.cuda, "synchronize", "torch.cuda.synchronize", _synchronized)
    watcher.watch(torch.cuda.Stream, "synchronize", "Stream.synchronize", _synchronized)
    watcher.watch(torch.cuda.Event, "synchronize", "Event.synchronize", _synchronized)
    if hasattr(torch, "accelerator"):
        watcher.watch(torch.accelerator, "synchronize", "torch.accelerator.synchronize", _synchronized)


def _watch_modules(watcher: Watcher) -> None:
    for name in ("to", "cuda", "cpu"):
        watcher.watch(torch.nn.Module, name, f"Module.{name}", _placed)


def _synchronized(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    return Kind.SYNC, 0, None


def _placed(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    """A model was put somewhere: not what a step uploads."""
    first = next(args[0].parameters(), None)
    where = {} if first is None else {"device": str(first.device)}
    return Kind.BUILD, 0, {"what": "Module", "function": type(args[0]).__name__, **where}


_ALL: dict[str, Callable[[Watcher], None]] = {
    "torch.Tensor": _watch_tensors,
    "synchronize": _watch_waits,
    "torch.nn.Module": _watch_modules,
    "DataLoader": watch_data,
    "torch.compile": watch_compiled,
    "optimizer.step": watch_steps,
}
