"""The doctor: profiles a training script and reports which lines slow it down.

The report also predicts the gain of each cure.

    from forebay.doctor import watch

    with watch() as profile:
        train()
    profile.show()
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
