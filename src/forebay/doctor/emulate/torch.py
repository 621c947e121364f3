"""Emulations for PyTorch: which of its calls upload, read, wait or return batches, and how each is replaced."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import dataloader

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.capture.hooks.torch.call_hooks import TorchHook, TorchHooks
from forebay.doctor.capture.hooks.torch.fingerprint import fingerprint_of_tensor
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

_READS = (
    *("item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__"),
    *("__format__", "__repr__"),
)
_CONVERSIONS = ("tensor", "as_tensor", "from_numpy", "asarray")
_MOVES = ("to", "cuda")

Function = Callable[..., Any]  # a function of PyTorch
EmulatedCall = Callable[[Emulator, Function, tuple[Any, ...], dict[str, Any]], Any]


def install(emulator: Emulator) -> None:
    hooks = TorchHooks(emulator.patches)
    for owner, name, call in _CALLS[emulator.kind]:
        hooks.replace(owner, name, name, partial(_EmulatedFunction, emulator=emulator, call=call))


def wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _EmulatedFunction(TorchHook):
    """Replaces a function of PyTorch, except while it is traced."""

    def __init__(self, original: Any, name: str, hooks: TorchHooks, *, emulator: Emulator, call: EmulatedCall) -> None:
        super().__init__(original, name, hooks)
        self._emulator, self._call = emulator, call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self.is_on or torch._C._is_tracing():
            return self._original(*args, **kwargs)
        return self._call(self._emulator, self._original, args, kwargs)


def _take_batch(emulator: Emulator, take: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    iterator = args[0]
    length = partial(_length_of, iterator)
    return emulator.batches.next_batch(partial(take, iterator), iterator, id(iterator._dataset), length=length)


def _length_of(iterator: Any) -> int | None:
    with suppress(TypeError, NotImplementedError):  # raised by the loader of a stream, which has no length
        return len(iterator)
    return None


def _convert(emulator: Emulator, convert: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert NumPy or Python data to a tensor."""
    if not args:
        return convert(**kwargs)
    data, *options = args
    return emulator.uploads.upload(
        partial(convert, *args, **kwargs),
        data,
        convert,
        *options,
        *kwargs.items(),
        take_fingerprint=fingerprint_of_tensor if isinstance(data, torch.Tensor) else fingerprint,
        may_keep=lambda tensor: not tensor.requires_grad,
    )


def _move(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Move a host tensor to a device. Other tensors may be part of the computation."""
    tensor, *options = args
    run_original = partial(move, *args, **kwargs)
    if not _is_host_data(tensor):
        return run_original()
    return emulator.uploads.upload(
        run_original,
        tensor,
        move,
        *options,
        *kwargs.items(),
        take_fingerprint=fingerprint_of_tensor,
        may_keep=lambda moved: not moved.is_cpu,
    )


def _move_locked(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Move from page-locked memory, without waiting for the copy."""
    tensor, *options = args
    sent = emulator.prepared.substitute(tensor, _lock) if _is_host_data(tensor) else tensor
    if sent is tensor:
        return move(*args, **kwargs)
    if bool not in map(type, options):
        return move(sent, *options, **kwargs | {"non_blocking": True})
    return move(sent, *(True if type(value) is bool else value for value in options), **kwargs)


def _upload_narrowed(emulator: Emulator, upload: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert or move numbers that were narrowed before."""
    if not args or (isinstance(args[0], torch.Tensor) and not _is_host_data(args[0])):
        return upload(*args, **kwargs)
    return upload(emulator.prepared.substitute(args[0], _narrow), *args[1:], **kwargs)


def _narrow(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.float() if data.dtype is torch.float64 else data
    return data.astype("float32") if isinstance(data, np.ndarray) and data.dtype == "float64" else data


def _move_early(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    run_original = partial(move, *args, **kwargs)
    if not _is_host_data(args[0]):
        return run_original()
    return emulator.prefetch.upload(run_original, args[0], _start_copy)


def _start_copy(move: Function) -> Function:
    """Copy on a separate stream; the stream that takes the tensor waits for the copy."""
    if not torch.cuda.is_initialized():
        return partial(_take_copy, move())
    with torch.cuda.stream(_copy_stream()):
        tensor, arrived = move(), torch.cuda.Event()
        arrived.record()
    return partial(_take_copy, tensor, arrived)


def _take_copy(tensor: Any, arrived: Any = None) -> Any:
    if arrived is not None and tensor.is_cuda:
        current = torch.cuda.current_stream()
        current.wait_event(arrived)
        tensor.record_stream(current)
    return tensor


@cache
def _copy_stream() -> Any:
    return torch.cuda.Stream()


def _is_host_data(tensor: Any) -> bool:
    return bool(tensor.is_cpu and not tensor.requires_grad)


def _lock(tensor: Any) -> Any:
    """Page-lock a tensor; returns the same tensor if its memory is page-locked already."""
    return tensor.pin_memory() if torch.cuda.is_available() else tensor.clone()


def _read(name: str, emulator: Emulator, read: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    run_original = partial(read, *args, **kwargs)
    if name == "cpu" and args[0].requires_grad:
        return run_original()  # gradients can flow through a result only once
    return emulator.reads.read(run_original, name, args[0])


def _wait(emulator: Emulator, wait: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return emulator.reads.wait(partial(wait, *args, **kwargs), "synchronize")


_UPLOADS: list[tuple[Any, str, EmulatedCall]] = [(torch, name, _convert) for name in _CONVERSIONS]
_UPLOADS += [(torch.Tensor, name, _move) for name in _MOVES]
_CALLS: dict[EmulationKind, list[tuple[Any, str, EmulatedCall]]] = {
    EmulationKind.RESIDENT: [(dataloader._BaseDataLoaderIter, "__next__", _take_batch), *_UPLOADS],
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.DEFER: [(torch.Tensor, name, partial(_read, name)) for name in _READS],
    EmulationKind.SKIP: [(owner, "synchronize", _wait) for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event)],
    EmulationKind.LOCK: [(torch.Tensor, name, _move_locked) for name in _MOVES],
    EmulationKind.NARROW: [(owner, name, _upload_narrowed) for owner, name, _ in _UPLOADS],
    EmulationKind.PREFETCH: [(torch.Tensor, name, _move_early) for name in _MOVES],
}
