"""What `jax.grad`, `jax.value_and_grad` and `jax.vmap` make: outside of compiled code their calls mark a loop.

Inside a function that is traced they are part of it, and nothing is written down.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax._src import core

from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked_open
from forebay.doctor.model.events import Kind

__all__ = ["watch_transforms"]

_NAMES = ("grad", "value_and_grad", "vmap")


def watch_transforms(patches: Patches) -> None:
    for name in _NAMES:
        api = f"jax.{name}"
        calls = _Calls(patches, api)
        patches.replace(jax, name, calls.watched, api=api)


class _Transformed(StandIn):
    """In the place of a function that was transformed."""

    def __init__(self, original: Any, calls: "_Calls") -> None:
        super().__init__(original)
        # As of a jitted function: what passes for something else answers slowly for itself.
        self._call = calls.hooked(original, {"function": str(getattr(self.__wrapped__, "__name__", ""))})

    @property  # type: ignore[misc]  # an attribute everywhere else; Python looks a property up all the same
    def __class__(self) -> Any:
        """What passes for a function is taken apart by those who pickle functions, and what is behind it with it."""
        return _Transformed

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _Calls:
    """Writes down calls of functions that one transformation made."""

    def __init__(self, patches: Patches, api: str) -> None:
        self._ledger: Ledger = patches.ledger
        self._on = True
        self._api = api
        patches.undo_with(self._stop, api=api)

    def _stop(self) -> None:
        """Stand-ins stay in the script for good; from now on they pass calls on and no more."""
        self._on = False

    def watched(self, original: Any) -> Any:
        def transform(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            return _Transformed(made, self) if self._on and callable(made) else made

        return transform

    def hooked(self, original: Any, detail: dict[str, Any]) -> Callable[..., Any]:
        ledger, api = self._ledger, self._api

        def write(start: int, end: int, *_: Any) -> None:
            ledger.write(Kind.TRANSFORM, api, ledger.lines.here(), start, end, 0, detail)

        return hooked_open(ledger, api, original, write, self._is_outside)

    def _is_outside(self, *_: Any, **__: Any) -> bool:
        return self._on and bool(core.trace_state_clean())
