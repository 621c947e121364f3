"""The busy consumer: a training step that is all launches and no arithmetic, so whatever disturbs it shows."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

__all__ = ["Step", "busy_step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One training step, and what it is made of."""

    run: Callable[[], None]
    description: str


def busy_step() -> Step:
    """The torch step; without torch a NumPy one, which gives the GIL away less often and says so."""
    module = import_module(f"{__name__}.{'torch' if find_spec('torch') else 'numpy'}_step")
    return Step(module.step, module.DESCRIPTION)
