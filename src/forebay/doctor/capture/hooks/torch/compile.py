"""`torch.compile` and CUDA graphs: what is asked to be compiled. The compiler itself is watched once it is loaded."""

from functools import partial
from importlib import import_module
from typing import Any

import torch

from forebay.doctor.capture.after_import import AfterImport
from forebay.doctor.capture.hooks.torch.watcher import Found, Watcher
from forebay.doctor.model.events import Kind

__all__ = ["COMPILE", "name_of", "watch_compiled"]

COMPILE = "torch.compile"
_DYNAMO_HOOKS = "forebay.doctor.capture.hooks.torch.dynamo"


def watch_compiled(watcher: Watcher) -> None:
    watcher.watch(torch, "compile", COMPILE, _asked)
    watcher.watch(torch.cuda.CUDAGraph, "replay", "CUDAGraph.replay", _replayed)
    imports = AfterImport({"torch._dynamo": partial(_watch_dynamo, watcher)})
    imports.install()  # to load the compiler takes a second, and not every script does
    watcher.patches.undo_with(imports.remove, api=COMPILE)


def name_of(function: Any) -> str:
    """Of a function, or the class of a module."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def _asked(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | None:
    model = args[0] if args else kwargs.get("model")
    if model is None or result is model:
        return None  # a decorator that awaits its function, or compilation switched off
    return Kind.BUILD, 0, {"what": "function", "function": name_of(model)}


def _replayed(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    return Kind.RUN, 0, {"function": "CUDA graph"}


def _watch_dynamo(watcher: Watcher) -> None:
    """Its file imports the compiler, so it is loaded after that."""
    with watcher.quietly(COMPILE):
        import_module(_DYNAMO_HOOKS).watch_dynamo(watcher)
