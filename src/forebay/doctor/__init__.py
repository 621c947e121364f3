"""The doctor: profiles a training script and reports which lines slow it down.

The report also predicts how much time each proposed change of the script saves.

    from forebay.doctor import watch

    with watch() as profile:
        train()
    profile.show()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.doctor.keras_callback import KerasWatch
    from forebay.doctor.watch_context import Watch, watch

__all__ = ["KerasWatch", "Watch", "watch"]

_MODULES = {
    "KerasWatch": "forebay.doctor.keras_callback",
    "Watch": "forebay.doctor.watch_context",
    "watch": "forebay.doctor.watch_context",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    The command line imports this package, but only `KerasWatch` needs Keras.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
