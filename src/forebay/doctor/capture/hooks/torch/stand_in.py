"""A stand-in for a function of torch's, which passes for it in torch's own tables too.

torch keeps tables of its functions, filled when they are first asked for: which of them its compiler knows, which a
default device applies to, which a subclass of tensors handles. What merely wraps a function would be missed in a table
made before it came, and leave one behind that misses the function after it went: a program could fail for having been
watched. So a stand-in is equal to what it stands for.
"""

from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from forebay.doctor.capture.hooks.stand_in import StandIn

__all__ = ["TorchStandIn", "place_of"]


class TorchStandIn(StandIn):
    """Calls what it stands for; what else a call does is for those who inherit from it."""

    def __init__(self, original: Any, place: str) -> None:
        super().__init__(original)
        self.on = True  # whoever has taken hold of it keeps it after it has been replaced again
        self._place = place
        self._stands_for = getattr(original, "_stands_for", original)  # another stand-in may be there already

    def retire(self) -> None:
        """Do nothing more than what it stands for."""
        self.on = False

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TorchStandIn):
            return other._stands_for is self._stands_for
        return other is self._stands_for or NotImplemented

    def __hash__(self) -> int:
        return hash(self._stands_for)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as its name: whoever reads that finds whatever stands there."""
        return resolve_name, (self._place,)


def place_of(owner: Any, name: str) -> str:
    """Where a function is found again: `torch:Tensor.item`."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"
