"""Hooks for `torch.compile` and CUDA graphs. `dynamo.py` hooks the compiler when the script loads it."""

from functools import partial
from importlib import import_module
from typing import Any

import torch

from forebay.doctor.capture.hooks.torch.call_hooks import Description, TorchHooks
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.model.events import EventKind

__all__ = ["COMPILE", "hook_compile", "name_of_function"]

COMPILE = "torch.compile"  # API name in events
_DYNAMO_HOOKS = "forebay.doctor.capture.hooks.torch.dynamo"


def hook_compile(hooks: TorchHooks) -> None:
    hooks.hook(torch, "compile", COMPILE, _describe_compile)
    hooks.hook(torch.cuda.CUDAGraph, "replay", "CUDAGraph.replay", _describe_replay)
    imports = PostImportActions({"torch._dynamo": partial(_hook_dynamo, hooks)})
    imports.install()  # not `import torch._dynamo`, which takes a second and which many scripts do not need
    hooks.patches.add_undo(imports.remove, api=COMPILE)


def name_of_function(function: Any) -> str:
    """Return the name of a function, or the class name of a module."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def _describe_compile(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description | None:
    model = args[0] if args else kwargs.get("model")
    if model is None or result is model:
        return None  # `torch.compile` returned a decorator, or compilation is disabled
    return EventKind.BUILD, 0, {"what": "function", "function": name_of_function(model)}


def _describe_replay(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description:
    return EventKind.RUN, 0, {"function": "CUDA graph"}


def _hook_dynamo(hooks: TorchHooks) -> None:
    """Install the hooks of the compiler.

    The module of these hooks is imported only now, because it imports the compiler.
    """
    with hooks.guard(COMPILE):
        import_module(_DYNAMO_HOOKS).hook_dynamo(hooks)
