"""The doctor profiles a training script and reports what slows it down, which line, and what each cure would save.

from forebay.doctor import watch
with watch() as seen:
    train()
seen.show()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forebay.doctor.watch_context import Watch, watch

if TYPE_CHECKING:
    from forebay.doctor.keras_callback import KerasWatch

__all__ = ["KerasWatch", "Watch", "watch"]


def __getattr__(name: str) -> Any:
    """Import `KerasWatch` on first use, because it needs Keras."""
    if name != "KerasWatch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("forebay.doctor.keras_callback").KerasWatch
