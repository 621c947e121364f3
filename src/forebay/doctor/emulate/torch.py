"""PyTorch: which of its calls upload, read, wait or give batches, and how each is made otherwise."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import dataloader

from forebay.doctor.capture.data_fingerprint import key_of
from forebay.doctor.capture.hooks.torch.fingerprint import key_of_tensor
from forebay.doctor.capture.hooks.torch.watcher import Hook, Watcher
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Way

__all__ = ["install", "wait"]

_READS = (
    *("item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__"),
    *("__format__", "__repr__"),
)
_CONVERSIONS = ("tensor", "as_tensor", "from_numpy", "asarray")
_MOVES = ("to", "cuda")

Function = Callable[..., Any]  # of torch's
Call = Callable[[Emulator, Function, tuple[Any, ...], dict[str, Any]], Any]


def install(emulator: Emulator) -> None:
    watcher = Watcher(emulator.patches)
    for owner, name, call in _CALLS[emulator.way]:
        watcher.replace(owner, name, name, partial(_Called, emulator=emulator, call=call))


def wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _Called(Hook):
    """In the place of a function of torch's; what is being traced is left alone."""

    def __init__(self, original: Any, place: str, watcher: Watcher, *, emulator: Emulator, call: Call) -> None:
        super().__init__(original, place, watcher)
        self._emulator, self._call = emulator, call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self.on or torch._C._is_tracing():
            return self._original(*args, **kwargs)
        return self._call(self._emulator, self._original, args, kwargs)


def _take(emulator: Emulator, take: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    iterator = args[0]
    length = partial(_length, iterator)
    return emulator.batches.instead(partial(take, iterator), iterator, id(iterator._dataset), length=length)


def _length(iterator: Any) -> int | None:
    with suppress(TypeError, NotImplementedError):  # what a loader of a stream says, having no length
        return len(iterator)
    return None


def _convert(emulator: Emulator, convert: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Data of NumPy's or Python's becomes a tensor."""
    if not args:
        return convert(**kwargs)
    data, *asked = args
    sample = key_of_tensor if isinstance(data, torch.Tensor) else key_of
    again = partial(convert, *args, **kwargs)
    return emulator.uploads.instead(
        again, data, convert, *asked, *kwargs.items(), sample=sample, keep=lambda made: not made.requires_grad
    )


def _move(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor of the host's goes to a device; others may be part of what is computed."""
    tensor, *asked = args
    again = partial(move, *args, **kwargs)
    if not _is_hosts(tensor):
        return again()
    return emulator.uploads.instead(
        again, tensor, move, *asked, *kwargs.items(), sample=key_of_tensor, keep=lambda moved: not moved.is_cpu
    )


def _send(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same out of page-locked memory, where it need not be waited for."""
    tensor, *asked = args
    sent = emulator.substitutes.instead(tensor, _lock) if _is_hosts(tensor) else tensor
    if sent is tensor:
        return move(*args, **kwargs)
    if bool not in map(type, asked):
        return move(sent, *asked, **kwargs | {"non_blocking": True})
    return move(sent, *(True if type(value) is bool else value for value in asked), **kwargs)


def _narrow(emulator: Emulator, upload: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A conversion or a move of numbers that were narrowed before."""
    if not args or (isinstance(args[0], torch.Tensor) and not _is_hosts(args[0])):
        return upload(*args, **kwargs)
    return upload(emulator.substitutes.instead(args[0], _narrowed), *args[1:], **kwargs)


def _narrowed(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.float() if data.dtype is torch.float64 else data
    return data.astype("float32") if isinstance(data, np.ndarray) and data.dtype == "float64" else data


def _move_ahead(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    again = partial(move, *args, **kwargs)
    return emulator.ahead.instead(again, args[0], _begin) if _is_hosts(args[0]) else again()


def _begin(move: Function) -> Function:
    """On a stream of its own; whoever takes the tensor has his stream wait for it."""
    if not torch.cuda.is_initialized():
        return partial(_taken, move())
    with torch.cuda.stream(_copies()):
        tensor, arrived = move(), torch.cuda.Event()
        arrived.record()
    return partial(_taken, tensor, arrived)


def _taken(tensor: Any, arrived: Any = None) -> Any:
    if arrived is not None and tensor.is_cuda:
        current = torch.cuda.current_stream()
        current.wait_event(arrived)
        tensor.record_stream(current)
    return tensor


@cache
def _copies() -> Any:
    return torch.cuda.Stream()


def _is_hosts(tensor: Any) -> bool:
    return bool(tensor.is_cpu and not tensor.requires_grad)


def _lock(tensor: Any) -> Any:
    """The same tensor where its memory is locked already."""
    return tensor.pin_memory() if torch.cuda.is_available() else tensor.clone()


def _read(name: str, emulator: Emulator, read: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    again = partial(read, *args, **kwargs)
    if name == "cpu" and args[0].requires_grad:
        return again()  # it is computed on with gradients, which can be had once
    return emulator.reads.instead(again, name, args[0])


def _wait(emulator: Emulator, wait: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return emulator.reads.waited(partial(wait, *args, **kwargs), "synchronize")


_UPLOADS: list[tuple[Any, str, Call]] = [(torch, name, _convert) for name in _CONVERSIONS]
_UPLOADS += [(torch.Tensor, name, _move) for name in _MOVES]
_CALLS: dict[Way, list[tuple[Any, str, Call]]] = {
    Way.RESIDENT: [(dataloader._BaseDataLoaderIter, "__next__", _take), *_UPLOADS],
    Way.REMEMBER: _UPLOADS,
    Way.REUSE: _UPLOADS,
    Way.DEFER: [(torch.Tensor, name, partial(_read, name)) for name in _READS],
    Way.SKIP: [(owner, "synchronize", _wait) for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event)],
    Way.LOCK: [(torch.Tensor, name, _send) for name in _MOVES],
    Way.NARROW: [(owner, name, _narrow) for owner, name, _ in _UPLOADS],
    Way.AHEAD: [(torch.Tensor, name, _move_ahead) for name in _MOVES],
}
