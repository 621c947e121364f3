"""Aliases for engines and hand-offs that use the method names of Forebay 0.1.

Forebay 0.2 renamed some methods of the engine and hand-off protocols. If the class of a plug-in defines an old name,
this module adds the new name to the class as an alias and emits a DeprecationWarning. The module creates no wrapper
object, so that the feed uses the same engine object that the user passed in.
"""

import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

__all__ = ["adapt_engine", "adapt_hand_off", "warn_renamed"]

# Old name: current name.
_HAND_OFF_NAMES = {"held_dtype": "framework_dtype", "on_device": "for_device"}
_DEVICE_HAND_OFF_NAMES = {
    "held_dtype": "framework_dtype",
    "keep_for": "record_stream",
    "waits_on_import": "syncs_on_import",
}
_ENGINE_NAMES = {
    "far": "is_device",
    "attend": "enter_worker_thread",
    "visit": "consumer_scope",
    "await_host": "wait_host_free",
    "lend": "hand_out",
    "side": "device_handoff",
}
_MEMORY_NAMES = {"counted": "lease_object"}


def adapt_hand_off(hand_off: Any) -> Any:
    """Add the current method names to the class of a hand-off; return the hand-off."""
    kind = type(hand_off)
    if "on_device" in _add_current_names(hand_off, _HAND_OFF_NAMES):

        def for_device(self: Any, index: int | None) -> Any:
            device_handoff = self.on_device(index)
            _add_current_names(device_handoff, _DEVICE_HAND_OFF_NAMES)
            return device_handoff

        kind.for_device = for_device
    return hand_off


def adapt_engine(engine: Any) -> Any:
    """Add the current method names to the class of an engine; return the engine."""
    kind = type(engine)
    if _add_current_names(engine, _ENGINE_NAMES):
        open_slot = kind.open_slot

        def open_adapted_slot(self: Any, nbytes: int, *, shared: bool = False) -> Any:
            memory = open_slot(self, nbytes, shared=shared)
            _add_current_names(memory, _MEMORY_NAMES)
            return memory

        kind.open_slot = open_adapted_slot
    if not hasattr(engine, "device_handoff"):  # in 0.1, engines for host memory did not need this attribute
        kind.device_handoff = None
    if engine.device_handoff is not None:
        _add_current_names(engine.device_handoff, _DEVICE_HAND_OFF_NAMES)
    return engine


def warn_renamed(owner: str, renamed: Mapping[str, str]) -> None:
    """Emit a DeprecationWarning about {old: current} names that a plug-in `owner` uses."""
    changes = ", ".join(f"{old} is now {new}" for old, new in renamed.items())
    warnings.warn(f"{owner} uses names of Forebay 0.1: {changes}. Rename them.", DeprecationWarning, stacklevel=3)


def _add_current_names(plugin: Any, names: Mapping[str, str]) -> dict[str, str]:
    """Add an alias for each old name that a plug-in uses; return {old: current}."""
    kind = type(plugin)
    renamed = {old: new for old, new in names.items() if _uses_old_name(plugin, old, new)}
    for old, new in renamed.items():
        setattr(kind, new, property(attrgetter(old)))
    if renamed:
        warn_renamed(kind.__qualname__, renamed)
    return renamed


def _uses_old_name(plugin: Any, old: str, new: str) -> bool:
    """Return whether a plug-in still uses the old name of a method.

    A plug-in uses it if its class defines only the old name, or if it overrides the old name below the class that
    defines the new name.
    """
    if not hasattr(plugin, old):
        return False
    return not hasattr(plugin, new) or _depth(type(plugin), old) < _depth(type(plugin), new)


def _depth(kind: type, name: str) -> int:
    """Return the index in `kind.__mro__` of the first class that defines a name."""
    return next((depth for depth, base in enumerate(kind.__mro__) if name in vars(base)), len(kind.__mro__))
