"""Hooks for PyTorch: transfers, waits, data loaders, compilations and ends of steps.

The hooks do not make PyTorch compile functions again, with one exception: a compiled function that calls `torch.tensor`
is compiled once more after the hooks are removed, because its guards compare the address of `torch.tensor`.

The hooks do not record:
- operations that mix devices or wait for the device (`unique`, `torch.where(mask)`), except those in `_WAITS`: every
  operation would need a hook
- `torch.Tensor(data)`
- batches that a generator of the script yields, and rows that worker processes of a DataLoader make
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from forebay.doctor.capture.hooks.torch import tensors
from forebay.doctor.capture.hooks.torch.call_hooks import DescribeCall, Description, TorchCallHook, TorchHooks
from forebay.doctor.capture.hooks.torch.compile import hook_compile
from forebay.doctor.capture.hooks.torch.dataloader import hook_data
from forebay.doctor.capture.hooks.torch.optimizer_steps import hook_steps
from forebay.doctor.capture.hooks.torch.settings import hook_settings
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["install"]

# Methods of tensors that read values back -> API name in events, and function that describes the event.
_READS: dict[str, tuple[str, DescribeCall]] = {
    "item": ("Tensor.item", tensors.describe_read),
    "tolist": ("Tensor.tolist", tensors.describe_read),
    "numpy": ("Tensor.numpy", tensors.describe_read_or_view),
    "cpu": ("Tensor.cpu", tensors.describe_read_or_view),
    "__array__": ("np.asarray(tensor)", tensors.describe_read_or_view),
    "__bool__": ("bool(tensor)", tensors.describe_read),
    "__float__": ("float(tensor)", tensors.describe_read),
    "__int__": ("int(tensor)", tensors.describe_read),
    "__index__": ("index(tensor)", tensors.describe_read),
    "__complex__": ("complex(tensor)", tensors.describe_read),
    "__repr__": ("print(tensor)", tensors.describe_print),
    "__format__": ("format(tensor)", tensors.describe_print),
}
_WAITS = ("nonzero", "masked_select", "equal", "allclose")  # operations that wait for values on the device
_CONVERSIONS = ("tensor", "as_tensor", "from_numpy", "asarray")  # functions that make a tensor from host data
ASSIGNMENT = "tensor[index] = value"
_PLAIN_TYPES = frozenset({int, float, bool, complex})  # an assigned value of these types causes no transfer


def install(patches: Patches) -> None:
    hooks = TorchHooks(patches)
    for api, install_hooks in _INSTALLERS.items():
        with hooks.guard(api):  # if a version of PyTorch lacks a function, the other hooks are still installed
            install_hooks(hooks)


def _hook_tensors(hooks: TorchHooks) -> None:
    for name, (api, describe) in _READS.items():
        hooks.hook(torch.Tensor, name, api, describe, skips_host_rows=True)
    for name in ("to", "cuda"):
        hooks.hook(torch.Tensor, name, f"Tensor.{name}", tensors.describe_move, skips_host_rows=True)
    hooks.hook(torch.Tensor, "copy_", "Tensor.copy_", tensors.describe_copy)
    for name in _CONVERSIONS:
        hooks.hook(torch, name, f"torch.{name}", tensors.describe_conversion, skips_host_rows=True)
    for name in _WAITS:
        hooks.hook(torch.Tensor, name, f"Tensor.{name}", tensors.describe_wait)
        hooks.hook(torch, name, f"torch.{name}", tensors.describe_wait)
    # Do not hook `__getitem__`. If Python code sets it on `torch.Tensor`, CPython treats tensors as sequences, and
    # `torch.tensor([loss])` fails for a tensor without dimensions, even after the hook is removed.
    assign = partial(_AssignmentHook, api=ASSIGNMENT, describe=tensors.describe_assignment)
    hooks.replace(torch.Tensor, "__setitem__", ASSIGNMENT, assign)


class _AssignmentHook(TorchCallHook):
    """Hook of `tensor[index] = value`.

    It skips Python numbers: scripts assign them often, and the assignment causes no transfer.
    """

    def __call__(self, tensor: Any, index: Any, value: Any, /) -> Any:
        if type(value) in _PLAIN_TYPES:
            return self._original(tensor, index, value)
        return self._call(tensor, index, value)


def _hook_waits(hooks: TorchHooks) -> None:
    hooks.hook(torch.cuda, "synchronize", "torch.cuda.synchronize", _describe_sync)
    hooks.hook(torch.cuda.Stream, "synchronize", "Stream.synchronize", _describe_sync)
    hooks.hook(torch.cuda.Event, "synchronize", "Event.synchronize", _describe_sync)
    if hasattr(torch, "accelerator"):
        hooks.hook(torch.accelerator, "synchronize", "torch.accelerator.synchronize", _describe_sync)


def _hook_modules(hooks: TorchHooks) -> None:
    for name in ("to", "cuda", "cpu"):
        hooks.replace(torch.nn.Module, name, f"Module.{name}", partial(_ModuleHook, api=f"Module.{name}"))


def _describe_sync(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description:
    """Describe an explicit wait, which has neither bytes nor details."""
    return EventKind.SYNC, 0, None


class _ModuleHook(TorchCallHook):
    """Hook of a call that may move a model."""

    def __init__(self, original: Any, name: str, hooks: TorchHooks, *, api: str) -> None:
        super().__init__(original, name, hooks, api=api, describe=partial(_describe_module, hooks.thread_state))

    def __call__(self, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.is_on:
            with self._hooks.guard("torch.nn.Module"):
                self._hooks.thread_state.module_device = _device_of_module(module)  # `_describe_module` reads it
        return self._call(module, *args, **kwargs)


def _describe_module(thread_state: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description:
    """Describe a call that may move a model.

    The event is a BUILD event, because a script moves its model once. `thread_state.module_device` is the device of the
    model before the call.
    """
    module, source = args[0], thread_state.module_device
    device = _device_of_module(module)
    detail: dict[str, Any] = {"what": "Module", "function": type(module).__name__}
    if device:
        detail["device"] = device
    if source and device and source != device:
        detail |= {"source": source, "moved_nbytes": _nbytes_of_module(module)}
    return EventKind.BUILD, 0, detail


def _device_of_module(module: Any) -> str:
    """Return the device of the first parameter; "" if there is none."""
    first_parameter = next(module.parameters(), None)
    return "" if first_parameter is None else str(first_parameter.device)


def _nbytes_of_module(module: Any) -> int:
    """Return the bytes of all parameters and buffers; 0 if one has no size yet."""
    tensors_of_module = [*module.parameters(), *module.buffers()]
    is_lazy = any(torch.nn.parameter.is_lazy(tensor) for tensor in tensors_of_module)
    return 0 if is_lazy else sum(int(tensor.nbytes) for tensor in tensors_of_module)


_INSTALLERS: dict[str, Callable[[TorchHooks], None]] = {  # API name in notes about errors -> installer
    "torch.Tensor": _hook_tensors,
    "synchronize": _hook_waits,
    "torch.nn.Module": _hook_modules,
    "DataLoader": hook_data,
    "torch.compile": hook_compile,
    "optimizer.step": hook_steps,
    "debug settings": hook_settings,
}
