"""Emulations for PyTorch: hooks that replace uploads, read-backs, waits and reads of batches."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch.autograd import profiler
from torch.utils.data import RandomSampler, dataloader

import forebay
from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.capture.hooks.switches import Switch, always
from forebay.doctor.capture.hooks.torch.call_hooks import TorchHook, TorchHooks
from forebay.doctor.capture.hooks.torch.fingerprint import fingerprint_of_tensor
from forebay.doctor.capture.hooks.torch.settings import SWITCHES
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.emulate.transfers import narrow
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.emulation import EmulationKind, FeedRows

__all__ = ["install", "wait"]

# Methods that read a value back to the host.
_READS = (
    *("item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__"),
    *("__format__", "__repr__"),
)
_CONVERSIONS = ("tensor", "as_tensor", "from_numpy", "asarray")  # functions that convert host data to tensors
_MOVES = ("to", "cuda")  # methods that copy a tensor to a device
WORKER_PREFETCH = 2  # batches that each worker makes in advance; the default of PyTorch
# All calls of the profiler are skipped, because a profiler that never starts needs no `step` and no `stop`.
_PROFILER_SWITCHES = (
    *(Switch(DebugSetting.TORCH_PROFILER, torch.profiler.profile, name, always) for name in ("start", "step", "stop")),
    *(Switch(DebugSetting.TORCH_PROFILER, profiler.profile, name, always) for name in ("__enter__", "__exit__")),
)

Function = Callable[..., Any]  # a function of PyTorch
EmulatedCall = Callable[[Emulator, Function, tuple[Any, ...], dict[str, Any]], Any]  # emulator, original, args, kwargs


def install(emulator: Emulator) -> None:
    """Replace the calls that `_CALLS` lists for the kind of the emulation."""
    hooks = TorchHooks(emulator.patches)
    emulator.settings.disable(emulator.patches, (*SWITCHES, *_PROFILER_SWITCHES))
    for owner, name, call in _CALLS.get(emulator.kind, ()):
        hooks.replace(owner, name, name, partial(_EmulatedFunction, emulator=emulator, call=call))


def wait() -> None:
    """Wait until the device has finished all queued work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _EmulatedFunction(TorchHook):
    """Replaces a function of PyTorch, except while PyTorch traces."""

    def __init__(self, original: Any, name: str, hooks: TorchHooks, *, emulator: Emulator, call: EmulatedCall) -> None:
        super().__init__(original, name, hooks)
        self._emulator, self._call = emulator, call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self.is_on or torch._C._is_tracing():
            return self._original(*args, **kwargs)
        return self._call(self._emulator, self._original, args, kwargs)


def _take_batch(emulator: Emulator, take: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the first batch of the dataset; on other lines, the next batch."""
    iterator = args[0]
    length = partial(_length_of, iterator)
    return emulator.batches.next_batch(partial(take, iterator), iterator, id(iterator._dataset), length=length)


def _iterate_with_workers(emulator: Emulator, iterate: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an iterator of a loader with worker processes, on any line.

    PyTorch reads the attributes in `settings` when it makes the iterator. `object.__setattr__` sets them, because
    DataLoader refuses to set some of them after its creation.
    """
    loader, workers = args[0], emulator.batches.workers
    if loader.num_workers < workers:
        settings = {"num_workers": workers, "persistent_workers": True}
        settings["prefetch_factor"] = loader.prefetch_factor or WORKER_PREFETCH
        for name, value in settings.items():
            object.__setattr__(loader, name, value)
        loader._iterator = None  # an iterator of an earlier epoch has fewer workers
        emulator.batches.replaced += 1
    return iterate(*args, **kwargs)


class _LoaderBatches:
    """The batches of a DataLoader without the emulation; each iteration is an epoch."""

    def __init__(self, iterate: Function, loader: Any) -> None:
        self._iterate, self._loader = iterate, loader

    def __iter__(self) -> Any:
        return self._iterate(self._loader)


def _iterate_feed(emulator: Emulator, iterate: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the batches of a feed that reads what the loader reads.

    On lines other than the target line, return the batches of the loader.
    """
    loader, batches = args[0], emulator.batches
    if not batches.should_feed():
        return iterate(*args, **kwargs)
    if loader not in batches.feeds:
        batches.feeds[loader] = _make_feed(FeedRows(batches.rows), iterate, loader)
    batches.replaced += 1
    return iter(batches.feeds[loader])


def _make_feed(rows: FeedRows, iterate: Function, loader: Any) -> Any:
    """Return a feed that reads the data of a loader as `rows` says."""
    device = {} if torch.cuda.is_available() else {"device": "cpu"}
    if rows is FeedRows.BATCHES:
        return forebay.from_batches(_LoaderBatches(iterate, loader)).feed("torch", **device)
    dataset, is_shuffled = loader.dataset, isinstance(loader.sampler, RandomSampler)
    if rows is FeedRows.ARRAYS:
        columns = zip(*(dataset[row] for row in range(len(dataset))), strict=True)
        source = forebay.from_arrays(tuple(np.stack([np.asarray(part) for part in column]) for column in columns))
    else:
        source = forebay.from_source(dataset)
    ordered = source.shuffle(seed=0) if is_shuffled else source
    return ordered.batch(loader.batch_size, drop_remainder=loader.drop_last).feed("torch", **device)


def _length_of(iterator: Any) -> int | None:
    """Return the number of batches; None if unknown."""
    with suppress(TypeError, NotImplementedError):  # the loader reads a stream, which has no length
        return len(iterator)
    return None


def _convert(emulator: Emulator, convert: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert host data to a tensor, or return the tensor of an earlier conversion."""
    if not args:
        return convert(**kwargs)
    data, *options = args
    return emulator.uploads.upload(
        partial(convert, *args, **kwargs),
        data,
        convert,
        *options,
        *kwargs.items(),
        compute_fingerprint=fingerprint_of_tensor if isinstance(data, torch.Tensor) else fingerprint,
        is_reusable=lambda tensor: not tensor.requires_grad,
    )


def _move(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy host data to a device, or return an earlier copy.

    Tensors on a device or with a gradient are always copied, because they may be part of the computation.
    """
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
        compute_fingerprint=fingerprint_of_tensor,
        is_reusable=lambda moved: not moved.is_cpu,
    )


def _move_locked(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy from page-locked memory to a device, without waiting for the copy."""
    tensor, *options = args
    locked = emulator.prepared.substitute(tensor, _page_lock) if _is_host_data(tensor) else tensor
    if locked is tensor:
        return move(*args, **kwargs)
    if bool not in map(type, options):
        return move(locked, *options, **kwargs | {"non_blocking": True})
    # Positional booleans are `non_blocking` and `copy`. `copy=True` changes nothing in a copy to a device.
    return move(locked, *(True if type(value) is bool else value for value in options), **kwargs)


def _upload_narrowed(emulator: Emulator, upload: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert or move a narrowed array or tensor instead of the data."""
    if not args or (isinstance(args[0], torch.Tensor) and not _is_host_data(args[0])):
        return upload(*args, **kwargs)
    return upload(emulator.prepared.substitute(args[0], _narrow), *args[1:], **kwargs)


def _narrow(data: Any) -> Any:
    """Return float64 data as float32, other data unchanged."""
    if isinstance(data, torch.Tensor):
        return data.float() if data.dtype is torch.float64 else data
    return narrow(data) if isinstance(data, np.ndarray) else data


def _move_early(emulator: Emulator, move: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Start a copy to a device. Return the previous copy of similar data; see `UploadPrefetch.upload`."""
    run_original = partial(move, *args, **kwargs)
    if not _is_host_data(args[0]):
        return run_original()
    return emulator.prefetch.upload(run_original, args[0], _start_copy)


def _start_copy(move: Function) -> Function:
    """Start a copy on a separate stream; return a function that returns the tensor.

    The returned function makes the current stream wait for the copy.
    """
    if not torch.cuda.is_initialized():
        return partial(_take_copy, move())
    with torch.cuda.stream(_copy_stream()):
        tensor, copy_done = move(), torch.cuda.Event()
        copy_done.record()
    return partial(_take_copy, tensor, copy_done)


def _take_copy(tensor: Any, copy_done: Any = None) -> Any:
    if copy_done is not None and tensor.is_cuda:
        current = torch.cuda.current_stream()
        current.wait_event(copy_done)
        tensor.record_stream(current)
    return tensor


@cache
def _copy_stream() -> Any:
    return torch.cuda.Stream()


def _is_host_data(tensor: Any) -> bool:
    """Whether the tensor is on the host and needs no gradient."""
    return bool(tensor.is_cpu and not tensor.requires_grad)


def _page_lock(tensor: Any) -> Any:
    """Return a page-locked copy of a tensor; the tensor itself if it is page-locked already.

    Without CUDA, return an ordinary copy.
    """
    return tensor.pin_memory() if torch.cuda.is_available() else tensor.clone()


def _read(name: str, emulator: Emulator, read: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Read a value back, or return the last value; see `SkippedReads.read`."""
    run_original = partial(read, *args, **kwargs)
    if name == "cpu" and args[0].requires_grad:
        return run_original()  # the result belongs to a graph, which can run backward only once
    return emulator.reads.read(run_original, name, args[0])


def _wait(emulator: Emulator, wait: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wait for the device, or skip the wait; see `SkippedReads.wait`."""
    return emulator.reads.wait(partial(wait, *args, **kwargs), "synchronize")


# Owner, name and replacement of each call.
_UPLOADS: list[tuple[Any, str, EmulatedCall]] = [(torch, name, _convert) for name in _CONVERSIONS]
_UPLOADS += [(torch.Tensor, name, _move) for name in _MOVES]
_CALLS: dict[EmulationKind, list[tuple[Any, str, EmulatedCall]]] = {
    EmulationKind.RESIDENT: [(dataloader._BaseDataLoaderIter, "__next__", _take_batch), *_UPLOADS],
    EmulationKind.WORKERS: [(dataloader.DataLoader, "__iter__", _iterate_with_workers)],
    EmulationKind.FEED: [(dataloader.DataLoader, "__iter__", _iterate_feed)],
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.DEFER: [(torch.Tensor, name, partial(_read, name)) for name in _READS],
    EmulationKind.SKIP: [(owner, "synchronize", _wait) for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event)],
    EmulationKind.LOCK: [(torch.Tensor, name, _move_locked) for name in _MOVES],
    EmulationKind.NARROW: [(owner, name, _upload_narrowed) for owner, name, _ in _UPLOADS],
    EmulationKind.PREFETCH: [(torch.Tensor, name, _move_early) for name in _MOVES],
}
