"""A proxy that replaces a function and forwards everything to the original function.

Subclasses override the call, for example to record it.
"""

import sys
from functools import update_wrapper
from operator import getitem
from types import MethodType
from typing import Any

__all__ = ["FunctionProxy"]


class FunctionProxy:
    """Forwards to the original, which may be a compiled function whose type Python cannot subclass."""

    def __init__(self, original: Any) -> None:
        update_wrapper(self, original)
        self.__wrapped__ = getattr(original, "__wrapped__", original)
        self._original = original

    @property  # type: ignore[misc]  # typeshed declares an attribute; Python also accepts a property
    def __class__(self) -> Any:
        """Return the type of the original, so that `isinstance` checks still succeed."""
        return type(self._original)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind the proxy to an instance, as a function in a class does."""
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        """Compare equal to the original, so that caches with a proxy as key stay valid."""
        return other is self or bool(other == self._original)

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the original instead, so that the file can be loaded without Forebay."""
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__qualname__, None) is self:
            return self.__qualname__  # pickle stores this name; a process without hooks finds the original under it
        return getitem, ((self._original,), 0)  # loading computes `(original,)[0]`
