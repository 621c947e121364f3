"""Attributes of frameworks replaced by hooks, and put back."""

from collections.abc import Callable
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import Kind

__all__ = ["Patches", "Then", "hooked", "hooked_open"]

Describe = Callable[
    ..., tuple[int, dict[str, Any] | None] | None
]  # (result, *args, **kwargs) -> bytes, details; or skip
_NOT_THERE = object()


class Patches:
    """What was replaced, so that all of it, or all but one hook, can be put back."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.spoken: dict[str, str] = {}  # what events are called whose hook was put in under another name
        self._replaced: list[tuple[str, Any, str, Any, Any]] = []  # api, owner, name, what was there, what is now
        self._undo: list[tuple[str, Callable[[], None]]] = []

    def watch(self, owner: Any, name: str, kind: Kind, api: str, describe: Describe) -> None:
        """Let calls of `owner.name` be written down as they end; `describe` returning None means not worth it."""
        ledger = self.ledger

        def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = describe(result, *args, **kwargs)
            if found is not None:
                ledger.write(kind, api, ledger.lines.here(), start, end, found[0], found[1])

        self.replace(owner, name, lambda original: hooked(ledger, api, original, write), api=api)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any], *, api: str) -> None:
        """Put `make(original)` in the place of an attribute; where there is none, that is noted and nothing is lost."""
        original = vars(owner).get(name, _NOT_THERE)
        bound = getattr(owner, name, _NOT_THERE)
        if bound is _NOT_THERE:
            self.ledger.notes.append(f"{api} is not watched: {_named(owner)} has no {name} in this version.")
            return
        wrapper = make(bound if original is _NOT_THERE else _callable(original))
        _copy_names(wrapper, bound)
        try:
            setattr(owner, name, _like(original, wrapper))
        except (TypeError, AttributeError) as error:
            self.ledger.notes.append(f"{api} is not watched: {error}.")
            return
        self._replaced.append((api, owner, name, original, vars(owner)[name]))

    def undo_with(self, undo: Callable[[], None], *, api: str) -> None:
        """For hooks that are registered, not put in somebody's place."""
        self._undo.append((api, undo))

    def restore(self, *, but: str | None = None) -> None:
        """Put everything back, last first; what belongs to the API named `but` stays."""
        stays = () if but is None else (but, self.spoken.get(but, but))
        kept: list[tuple[str, Any, str, Any, Any]] = []
        covered = set()  # by a hook that stays: what is below it cannot go
        for replaced in reversed(self._replaced):
            api, owner, name, original, ours = replaced
            if api in stays or (id(owner), name) in covered:
                kept.append(replaced)
                covered.add((id(owner), name))
            elif vars(owner).get(name) is not ours:
                self.ledger.note(f"{api} stays as somebody else has put it since.")
            elif original is _NOT_THERE:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, original)
        self._replaced = kept[::-1]
        staying = [(api, undo) for api, undo in self._undo if api in stays]
        for api, undo in reversed(self._undo):
            if api not in stays:
                undo()
        self._undo = staying


def _callable(original: Any) -> Any:
    return original.__func__ if isinstance(original, staticmethod | classmethod) else original


def _like(original: Any, wrapper: Any) -> Any:
    """A static method stays one, a class method too."""
    return type(original)(wrapper) if isinstance(original, staticmethod | classmethod) else wrapper


def _copy_names(wrapper: Any, original: Any) -> None:
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(wrapper, name, value)
    wrapper.__wrapped__ = original


def _named(owner: Any) -> str:
    if isinstance(owner, MappingProxyType):
        return "it"
    module = getattr(owner, "__module__", "")
    name = getattr(owner, "__qualname__", getattr(owner, "__name__", type(owner).__name__))
    return f"{module}.{name}" if module else str(name)


Then = Callable[[int, int, Any, tuple[Any, ...], dict[str, Any]], None]  # start, end, result, arguments and keywords
When = Callable[..., bool]  # whether a call with such arguments is worth it


def hooked(
    ledger: Ledger, api: str, original: Callable[..., Any], then: Then, when: When | None = None
) -> Callable[..., Any]:
    """The same function; `then` is told of each call as it ends, unless that is part of one that is being watched."""
    enter, leave = ledger.enter, ledger.leave

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (when is not None and not when(*args, **kwargs)) or not enter():
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()  # before it is described, which is our time and not the script's
            try:
                then(start, end, result, args, kwargs)
            except Exception as error:
                ledger.failed(api, error)
            return result
        finally:
            leave()

    return hook


def hooked_open(
    ledger: Ledger, api: str, original: Callable[..., Any], then: Then, when: When | None = None
) -> Callable[..., Any]:
    """The same, but what is called inside is to be seen too: nothing is entered before that is over."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (when is not None and not when(*args, **kwargs)) or not ledger.is_open():
            return original(*args, **kwargs)
        start = perf_counter_ns()
        result = original(*args, **kwargs)
        end = perf_counter_ns()
        if ledger.enter():
            try:
                then(start, end, result, args, kwargs)
            except Exception as error:
                ledger.failed(api, error)
            finally:
                ledger.leave()
        return result

    return hook
