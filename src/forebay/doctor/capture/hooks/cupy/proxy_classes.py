"""Compiled classes, whose methods cannot be replaced: a class that is like them is put in their place."""

import copyreg
from collections.abc import Callable, Mapping
from typing import Any

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked
from forebay.doctor.model.events import Kind

__all__ = ["watch_class"]

Describe = Callable[[Any], dict[str, Any] | None]  # what a call returned -> details


def watch_class(
    patches: Patches, owner: Any, name: str, api: str, methods: Mapping[str, Kind], *, made: Describe | None = None
) -> None:
    """Let calls of some methods be written down, of objects that are made from now on; and with `made`, the making."""
    calls = _Calls(patches, api)

    def make(original: Any) -> Any:
        added: dict[str, Any] = {each: calls.watched(getattr(original, each), kind) for each, kind in methods.items()}
        if made is not None:
            added["_making"] = staticmethod(lambda making: calls.watched(making, Kind.BUILD, made))
        return _alike(original, added)

    patches.replace(owner, name, make, api=api)


class _Calls:
    """Hooks of one API. Objects that have them stay in the script for good, so they can be told to stop."""

    def __init__(self, patches: Patches, api: str) -> None:
        self._ledger: Ledger = patches.ledger
        self._api = api
        self._on = True
        patches.undo_with(self._stop, api=api)

    def watched(self, original: Any, kind: Kind, describe: Describe = lambda _: None) -> Callable[..., Any]:
        ledger, api = self._ledger, self._api

        def write(start: int, end: int, result: Any, *_: Any) -> None:
            ledger.write(kind, api, ledger.lines.here(), start, end, 0, describe(result))

        return hooked(ledger, api, original, write, lambda *_, **__: self._on)

    def _stop(self) -> None:
        self._on = False


class _Alike(type):
    """Of classes that stand for their base: what is one of those is one of these."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        watched = vars(cls).get("_making")
        make = super().__call__
        return make(*args, **kwargs) if watched is None else watched(make)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__[0]) if _stands_in(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__bases__[0]) if _stands_in(cls) else super().__subclasscheck__(subclass)


def _alike(original: Any, added: dict[str, Any]) -> type:
    def reduce(self: Any, protocol: Any) -> Any:
        """Pickled as what it stands for: whoever reads that needs no Forebay."""
        make, args, *rest = original.__reduce_ex__(self, protocol)
        made_anew = make is copyreg.__newobj__  # type: ignore[attr-defined]  # what pickle calls; typeshed leaves it out
        make = original.__new__ if made_anew else make
        return (make, tuple(original if arg is type(self) else arg for arg in args), *rest)

    return _Alike(original.__name__, (original,), {"_stands_in": True, "__reduce_ex__": reduce, **added})


def _stands_in(cls: type) -> bool:
    """The class itself; what the user derives from it is a class of its own."""
    return "_stands_in" in vars(cls)
