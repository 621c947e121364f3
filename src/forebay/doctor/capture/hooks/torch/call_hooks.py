"""How functions of PyTorch are hooked: a proxy records what a call did, and keeps its own errors from the script."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.overrides import has_torch_function

from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.patches import OnReturn, Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = [
    "CallHook",
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

_TORCH_FILES = (str(Path(torch.__file__).parent) + "/", "<eval_with_key>")  # its folder, and code that it generates


class TorchProxy(FunctionProxy):
    """Calls the original. Subclasses add what else a call does."""

    def __init__(self, original: Any, name: str) -> None:
        super().__init__(original)
        self.is_on = True  # code that has kept a reference calls the proxy even after it was removed
        self._name = name
        self._innermost = getattr(original, "_innermost", original)  # the original may itself be a proxy

    def retire(self) -> None:
        """Only call the original from now on."""
        self.is_on = False

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TorchProxy):
            return other._innermost is self._innermost
        return other is self._innermost or NotImplemented

    def __hash__(self) -> int:
        return hash(self._innermost)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a name, so that a reader gets whatever has that name."""
        return resolve_name, (self._name,)


def qualified_name(owner: Any, name: str) -> str:
    """Return the name by which a function can be imported: `torch:Tensor.item`."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"


class _TorchThread(threading.local):
    """What a thread is doing."""

    in_input = False  # inside an input pipeline: work on the host belongs to the input
    compiled_name = ""  # the compiled function that runs


class TorchHook(TorchProxy):
    """A proxy that records something."""

    def __init__(self, original: Any, name: str, hooks: "TorchHooks") -> None:
        super().__init__(original, name)
        self._hooks = hooks


class TorchHooks:
    """Installs hooks and holds the state of each thread."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches
        self.ledger = patches.ledger
        self.thread = _TorchThread()

    def hook(self, owner: Any, name: str, api: str, describe: DescribeCall) -> None:
        """Record each call of `owner.name` when it returns."""
        self.replace(owner, name, api, partial(CallHook, api=api, describe=describe))

    def replace(self, owner: Any, name: str, api: str, make: Callable[[Any, str, "TorchHooks"], TorchHook]) -> None:
        """Replace an attribute by a hook."""

        def build(original: Any) -> TorchHook:
            hook = make(original, qualified_name(owner, name), self)
            self.patches.add_undo(hook.retire, api=api)
            self._register_with_torchscript(hook, api)
            return hook

        self.patches.replace(owner, name, build, api=api)

    def is_internal_call(self, caller: FrameType) -> bool:
        """Whether PyTorch itself or an input pipeline made a call, and not the loop."""
        return self.thread.in_input or is_torch_file(caller.f_code.co_filename)

    @contextmanager
    def guard(self, api: str) -> Iterator[None]:
        """Turn errors of ours into notes, because the script must not see them."""
        try:
            yield
        except Exception as error:
            self.ledger.note_failure(api, error)

    def _register_with_torchscript(self, hook: TorchHook, api: str) -> None:
        """TorchScript looks functions up by address, so its table needs the address of the hook."""
        with self.guard(api):
            table = torch.jit._builtins._get_builtin_table()
            known = table.get(id(hook._original))
            if known is not None:
                table[id(hook)] = known
                self.patches.add_undo(lambda: table.pop(id(hook), None), api=api)


class CallHook(TorchHook):
    """Records each call when it returns, unless it is nested in another recorded call."""

    def __init__(self, original: Any, name: str, hooks: TorchHooks, *, api: str, describe: DescribeCall) -> None:
        super().__init__(original, name, hooks)
        self._call = make_hook(hooks.ledger, api, original, _make_writer(hooks, api, describe))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def retire(self) -> None:
        super().retire()
        self._call = self._original


def _make_writer(hooks: TorchHooks, api: str, describe: DescribeCall) -> OnReturn:
    ledger, is_internal_call = hooks.ledger, hooks.is_internal_call

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch._C._is_tracing():
            return  # reading a shape would become part of the trace
        if has_torch_function(args):
            with torch._C.DisableTorchFunction():  # a tensor subclass or a mode must not notice the inspection
                found = describe(result, args, kwargs)
        else:
            found = describe(result, args, kwargs)
        if found is None:
            return
        kind, nbytes, detail = found
        if type(nbytes) is not int:
            return  # a symbolic size: shapes are being traced
        if detail is not None and detail.get("device") == "cpu" and is_internal_call(sys._getframe(3)):
            return
        ledger.write(kind, api, ledger.lines.current_line(3), start, end, nbytes, detail=detail)

    return write


@cache
def is_torch_file(file: str) -> bool:
    return file.startswith(_TORCH_FILES)
