"""Proxies that replace functions of PyTorch and record their calls.

A proxy hides its own errors from the script.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from time import perf_counter_ns
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.overrides import has_torch_function

from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.patches import Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = [
    "TorchCallHook",
    "DescribeCall",
    "Description",
    "TorchHook",
    "TorchHooks",
    "TorchProxy",
    "is_torch_file",
    "qualified_name",
]

Description = tuple[EventKind, int, dict[str, Any] | None]  # kind, bytes and details of an event
# (result, args, kwargs) -> description of the event; None: record nothing
DescribeCall = Callable[[Any, tuple[Any, ...], dict[str, Any]], Description | None]

# Prefixes of the names of PyTorch's files: its folder, or the mark of code that PyTorch generates.
_TORCH_FILES = (str(Path(torch.__file__).parent) + "/", "<eval_with_key>")


class TorchProxy(FunctionProxy):
    """A proxy that compares equal to the original and is pickled by name."""

    def __init__(self, original: Any, name: str) -> None:
        super().__init__(original)
        self.is_on = True
        self._name = name  # as `qualified_name` returns it
        # The original may itself be a proxy.
        self._innermost_original = getattr(original, "_innermost_original", original)

    def switch_off(self) -> None:
        """Stop recording, and only forward calls from now on.

        Code that kept a reference to the proxy still calls it after the session has restored the original.
        """
        self.is_on = False

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TorchProxy):
            return other._innermost_original is self._innermost_original
        return other is self._innermost_original or NotImplemented

    def __hash__(self) -> int:
        return hash(self._innermost_original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle only the name.

        Loading returns the object that then has this name: a proxy or the original.
        """
        return resolve_name, (self._name,)


def qualified_name(owner: Any, name: str) -> str:
    """Return the name that `pkgutil.resolve_name` accepts, such as `torch:Tensor.item`."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"


class _TorchThreadState(threading.local):
    """What a thread is doing."""

    is_in_input = False  # a DataLoader is making a batch; conversions on the host are part of its work
    compiled_name = ""  # name of the compiled function that is running
    module_device = ""  # device of a model before the call that may move it


class TorchHook(TorchProxy):
    """A proxy with access to the ledger and the state of the current thread."""

    def __init__(self, original: Any, name: str, hooks: "TorchHooks") -> None:
        super().__init__(original, name)
        self._hooks = hooks


class TorchHooks:
    """Installs hooks. Its attribute `thread_state` is local to each thread."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches
        self.ledger = patches.ledger
        self.thread_state = _TorchThreadState()

    def hook(self, owner: Any, name: str, api: str, describe: DescribeCall, *, skips_host_rows: bool = False) -> None:
        """Record each call of `owner.name` when it returns.

        With `skips_host_rows`, calls that only use the host are not recorded while a DataLoader makes rows.
        """
        make = partial(TorchCallHook, api=api, describe=describe, skips_host_rows=skips_host_rows)
        self.replace(owner, name, api, make)

    def replace(self, owner: Any, name: str, api: str, make: Callable[[Any, str, "TorchHooks"], TorchHook]) -> None:
        """Replace `owner.name` by the hook `make(original, qualified name, self)`."""

        def make_and_register(original: Any) -> TorchHook:
            hook = make(original, qualified_name(owner, name), self)
            self.patches.add_undo(hook.switch_off, api=api)
            self._register_with_torchscript(hook, api)
            return hook

        self.patches.replace(owner, name, make_and_register, api=api)

    def is_internal_call(self, caller: FrameType) -> bool:
        """Whether `caller` is a frame of PyTorch, or a DataLoader is making a batch."""
        return self.thread_state.is_in_input or is_torch_file(caller.f_code.co_filename)

    @contextmanager
    def guard(self, api: str) -> Iterator[None]:
        """Turn an error in the `with` block into a note in the report."""
        try:
            yield
        except Exception as error:
            self.ledger.note_failure(api, error)

    def _register_with_torchscript(self, hook: TorchHook, api: str) -> None:
        """Add the hook to the table in which TorchScript finds built-in functions by their id."""
        with self.guard(api):
            table = torch.jit._builtins._get_builtin_table()
            builtin_name = table.get(id(hook._original))
            if builtin_name is not None:
                table[id(hook)] = builtin_name
                self.patches.add_undo(lambda: table.pop(id(hook), None), api=api)


class TorchCallHook(TorchHook):
    """Records each call when it returns, unless the call is nested in another recorded call."""

    def __init__(
        self,
        original: Any,
        name: str,
        hooks: TorchHooks,
        *,
        api: str,
        describe: DescribeCall,
        skips_host_rows: bool = False,
    ) -> None:
        super().__init__(original, name, hooks)
        self._skips_host_rows = skips_host_rows
        self._api, self._thread_state, self._write = api, hooks.thread_state, _make_writer(hooks, api, describe)
        self._call = make_hook(hooks.ledger, api, original, self._write)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        skips_host_calls = self._skips_host_rows and self._thread_state.is_in_input
        if not skips_host_calls or (args and _may_be_on_device(args[0])):
            return self._call(*args, **kwargs)
        start = perf_counter_ns()
        result = self._original(*args, **kwargs)
        if _may_be_on_device(result) and self.is_on and self._hooks.ledger.begin():
            try:
                self._write(start, perf_counter_ns(), result, args, kwargs, frames=2)
            except Exception as error:
                self._hooks.ledger.note_failure(self._api, error)
            finally:
                self._hooks.ledger.end()
        return result

    def switch_off(self) -> None:
        super().switch_off()
        self._call = self._original


def _make_writer(hooks: TorchHooks, api: str, describe: DescribeCall) -> Callable[..., None]:
    """Return an `OnReturn` function that writes the event of a call.

    Its additional argument `frames` is the number of stack frames from this function to the caller of the hooked
    function. The function does not record calls on the host that PyTorch itself makes.
    """
    ledger, is_internal_call = hooks.ledger, hooks.is_internal_call

    def write(
        start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frames: int = 3
    ) -> None:
        if torch._C._is_tracing():
            return  # TorchScript would add operations of `describe` to its trace
        if has_torch_function(args):
            with torch._C.DisableTorchFunction():  # do not call `__torch_function__` of the script
                description = describe(result, args, kwargs)
        else:
            description = describe(result, args, kwargs)
        if description is None:
            return
        kind, nbytes, detail = description
        if type(nbytes) is not int:
            return  # a symbolic size, because the compiler is tracing
        if detail is not None and detail.get("device") == "cpu" and is_internal_call(sys._getframe(frames)):
            return
        ledger.write((kind, api, ledger.lines.current_line(frames)), start, end, nbytes, detail=detail)

    return write


def _may_be_on_device(value: Any) -> bool:
    """Whether a value may be a tensor outside of the host; True for each tensor of a subclass.

    This does not read `is_cpu` of a subclass, which may run code of the script.
    """
    return not value.is_cpu if type(value) is torch.Tensor else issubclass(type(value), torch.Tensor)


@cache
def is_torch_file(file: str) -> bool:
    return file.startswith(_TORCH_FILES)
