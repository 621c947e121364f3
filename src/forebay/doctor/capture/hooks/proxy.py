"""An object in the place of a function: like it in every way that can be had, so that only a call tells."""

import sys
from functools import update_wrapper
from operator import getitem
from types import MethodType
from typing import Any

__all__ = ["StandIn"]


class StandIn:
    """Passes everything on. What it stands for may be a compiled function, whose type nobody can inherit from."""

    def __init__(self, original: Any) -> None:
        update_wrapper(self, original)
        self.__wrapped__ = getattr(original, "__wrapped__", original)
        self._original = original

    @property  # type: ignore[misc]  # an attribute everywhere else; Python looks a property up all the same
    def __class__(self) -> Any:
        """For `isinstance`."""
        return type(self._original)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A function in a class is a method."""
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        """Whoever remembers things by function is to find them again when the hooks are gone."""
        return other is self or bool(other == self._original)

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as what it stands for: whoever reads that needs no Forebay."""
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__qualname__, None) is self:
            return self.__qualname__  # in the place of a function that is pickled by its name
        return getitem, ((self._original,), 0)
