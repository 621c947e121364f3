"""Hooks for `jax.grad`, `jax.value_and_grad` and `jax.vmap`.

The hooked functions return proxies of the transformed functions. A proxy records calls, so that the step detector can
recognise steps by them. Calls inside a traced function or another transform are not recorded.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax._src import core

from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_open_hook
from forebay.doctor.model.events import EventKind

__all__ = ["hook_transforms"]

_NAMES = ("grad", "value_and_grad", "vmap")


def hook_transforms(patches: Patches) -> None:
    for name in _NAMES:
        api = f"jax.{name}"
        patches.replace(jax, name, _TransformHooks(patches, api).hook_transform, api=api)


class _TransformProxy(FunctionProxy):
    """Replaces a function that a transform made, and records its calls."""

    def __init__(self, original: Any, hooks: "_TransformHooks") -> None:
        super().__init__(original)
        # Attribute lookups on a proxy are slow, so `__call__` looks up only `_call`.
        self._call = hooks.make_call(original, {"function": str(getattr(self.__wrapped__, "__name__", ""))})

    @property  # type: ignore[misc]  # typeshed declares an attribute; Python also accepts a property
    def __class__(self) -> Any:
        """Return the proxy class.

        Libraries that pickle functions would otherwise treat the proxy as a function.
        """
        return _TransformProxy

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _TransformHooks:
    """Records calls of the functions that one transform, such as `jax.grad`, made."""

    def __init__(self, patches: Patches, api: str) -> None:
        self._ledger: Ledger = patches.ledger
        self._is_on = True
        self._api = api
        patches.add_undo(self._stop, api=api)

    def _stop(self) -> None:
        """Stop recording. The script keeps its proxies after the session; they only forward calls."""
        self._is_on = False

    def hook_transform(self, original: Any) -> Any:
        def transform(*args: Any, **kwargs: Any) -> Any:
            transformed = original(*args, **kwargs)
            return _TransformProxy(transformed, self) if self._is_on and callable(transformed) else transformed

        return transform

    def make_call(self, original: Any, detail: dict[str, Any]) -> Callable[..., Any]:
        ledger, api = self._ledger, self._api

        def write(start: int, end: int, *_: Any) -> None:
            ledger.write((EventKind.TRANSFORM, api, ledger.lines.current_line()), start, end, detail=detail)

        return make_open_hook(ledger, api, original, write, self._is_eager)

    def _is_eager(self, *_: Any, **__: Any) -> bool:
        return self._is_on and bool(core.trace_state_clean())
