"""A proxy that replaces a function and behaves like it in every respect except for its call."""

import sys
from functools import update_wrapper
from operator import getitem
from types import MethodType
from typing import Any

__all__ = ["FunctionProxy"]


class FunctionProxy:
    """Forwards everything to the original, which may be a compiled function whose type cannot be subclassed."""

    def __init__(self, original: Any) -> None:
        update_wrapper(self, original)
        self.__wrapped__ = getattr(original, "__wrapped__", original)
        self._original = original

    @property  # type: ignore[misc]  # typeshed declares an attribute; Python also accepts a property
    def __class__(self) -> Any:
        """Satisfy `isinstance` checks for the type of the original."""
        return type(self._original)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function when it is used as a method."""
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        """Equal the original, so that caches keyed by the function still work after the hooks are removed."""
        return other is self or bool(other == self._original)

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as the original, so that a reader needs no Forebay."""
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__qualname__, None) is self:
            return self.__qualname__  # it replaces a function that is pickled by its name
        return getitem, ((self._original,), 0)
