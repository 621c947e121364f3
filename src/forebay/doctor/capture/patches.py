"""Attributes of frameworks that are replaced by hooks and restored later."""

from collections.abc import Callable
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["OnReturn", "Patches", "make_hook", "make_open_hook"]

# (result, *args, **kwargs) -> bytes and details of the event; None: record nothing
Describe = Callable[..., tuple[int, dict[str, Any] | None] | None]
_MISSING = object()


class Patches:
    """Remembers replaced attributes, so that all of them, or all except one hook, can be restored."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.hook_apis: dict[str, str] = {}  # API name of an event -> API name of its hook, where they differ
        self._replaced: list[tuple[str, Any, str, Any, Any]] = []  # api, owner, name, original, replacement
        self._undo: list[tuple[str, Callable[[], None]]] = []

    def hook(self, owner: Any, name: str, kind: EventKind, api: str, describe: Describe) -> None:
        """Record each call of `owner.name` when it returns."""
        ledger = self.ledger

        def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = describe(result, *args, **kwargs)
            if found is not None:
                ledger.write(kind, api, ledger.lines.current_line(), start, end, found[0], detail=found[1])

        self.replace(owner, name, lambda original: make_hook(ledger, api, original, write), api=api)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any], *, api: str) -> None:
        """Replace an attribute by `make(original)`. If it does not exist, add a note and change nothing."""
        original = vars(owner).get(name, _MISSING)
        bound = getattr(owner, name, _MISSING)
        if bound is _MISSING:
            self.ledger.notes.append(f"{api} is not recorded: {_name_of(owner)} has no {name} in this version.")
            return
        wrapper = make(bound if original is _MISSING else _function_of(original))
        _copy_names(wrapper, bound)
        try:
            setattr(owner, name, _wrap_like(original, wrapper))
        except (TypeError, AttributeError) as error:
            self.ledger.notes.append(f"{api} is not recorded: {error}.")
            return
        self._replaced.append((api, owner, name, original, vars(owner)[name]))

    def add_undo(self, undo: Callable[[], None], *, api: str) -> None:
        """Register how to remove a hook that replaces no attribute."""
        self._undo.append((api, undo))

    def restore(self, *, except_api: str | None = None) -> None:
        """Restore everything, last replacement first; hooks of `except_api` stay."""
        stays = () if except_api is None else (except_api, self.hook_apis.get(except_api, except_api))
        kept: list[tuple[str, Any, str, Any, Any]] = []
        covered = set()  # attributes with a hook that stays: replacements below it cannot be removed
        for replaced in reversed(self._replaced):
            api, owner, name, original, ours = replaced
            if api in stays or (id(owner), name) in covered:
                kept.append(replaced)
                covered.add((id(owner), name))
            elif vars(owner).get(name) is not ours:
                self.ledger.note(f"{api} was not restored, because other code has replaced it since.")
            elif original is _MISSING:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, original)
        self._replaced = kept[::-1]
        staying = [(api, undo) for api, undo in self._undo if api in stays]
        for api, undo in reversed(self._undo):
            if api not in stays:
                undo()
        self._undo = staying


def _function_of(original: Any) -> Any:
    return original.__func__ if isinstance(original, staticmethod | classmethod) else original


def _wrap_like(original: Any, wrapper: Any) -> Any:
    """Keep static methods static and class methods class methods."""
    return type(original)(wrapper) if isinstance(original, staticmethod | classmethod) else wrapper


def _copy_names(wrapper: Any, original: Any) -> None:
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(wrapper, name, value)
    wrapper.__wrapped__ = original


def _name_of(owner: Any) -> str:
    if isinstance(owner, MappingProxyType):
        return "it"
    module = getattr(owner, "__module__", "")
    name = getattr(owner, "__qualname__", getattr(owner, "__name__", type(owner).__name__))
    return f"{module}.{name}" if module else str(name)


OnReturn = Callable[[int, int, Any, tuple[Any, ...], dict[str, Any]], None]  # start, end, result, args, kwargs
CallFilter = Callable[..., bool]  # (*args, **kwargs) -> whether to record the call


def make_hook(
    ledger: Ledger, api: str, original: Callable[..., Any], on_return: OnReturn, should_record: CallFilter | None = None
) -> Callable[..., Any]:
    """Wrap a function: `on_return` gets each call, unless it is nested in another recorded call."""
    begin_hook, end_hook = ledger.begin, ledger.end

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (should_record is not None and not should_record(*args, **kwargs)) or not begin_hook():
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()  # before `on_return`, whose time is ours and not the script's
            try:
                on_return(start, end, result, args, kwargs)
            except Exception as error:
                ledger.note_failure(api, error)
            return result
        finally:
            end_hook()

    return hook


def make_open_hook(
    ledger: Ledger, api: str, original: Callable[..., Any], on_return: OnReturn, should_record: CallFilter | None = None
) -> Callable[..., Any]:
    """Like `make_hook`, but hooks of nested calls record too."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (should_record is not None and not should_record(*args, **kwargs)) or not ledger.can_begin():
            return original(*args, **kwargs)
        start = perf_counter_ns()
        result = original(*args, **kwargs)
        end = perf_counter_ns()
        if ledger.begin():
            try:
                on_return(start, end, result, args, kwargs)
            except Exception as error:
                ledger.note_failure(api, error)
            finally:
                ledger.end()
        return result

    return hook
