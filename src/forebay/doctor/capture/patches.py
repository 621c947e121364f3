"""Replacement of framework attributes by hooks, and restoration of the original attributes."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["InputTrace", "OnReturn", "Patches", "make_hook", "make_open_hook"]

# describe(result, *args, **kwargs) -> `nbytes` and `detail` of the event; None: record no event
Describe = Callable[..., tuple[int, dict[str, Any] | None] | None]
_MISSING = object()


class InputTrace(Protocol):
    """Traces how a framework reads its batches, in some steps after the profiled steps.

    The profiled steps are not traced, because a trace makes steps slower.
    """

    def can_trace(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Patches:
    """Replaces attributes of frameworks by hooks and restores them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.hook_apis: dict[str, str] = {}  # API name of an event -> API name of its hook, if they differ
        self.input_trace: InputTrace | None = None
        self._replaced: list[tuple[str, Any, str, Any, Any]] = []  # api, owner, name, original, replacement
        self._undo: list[tuple[str, Callable[[], None]]] = []  # api, function that removes the hook

    def hook(self, owner: Any, name: str, kind: EventKind, api: str, describe: Describe) -> None:
        """Replace `owner.name` by a hook that records each call when it returns."""
        ledger = self.ledger

        def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            described = describe(result, *args, **kwargs)
            if described is not None:
                ledger.write((kind, api, ledger.lines.current_line()), start, end, described[0], detail=described[1])

        self.replace(owner, name, lambda original: make_hook(ledger, api, original, write), api=api)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any], *, api: str) -> None:
        """Replace `owner.name` by `make(original)`. If this fails, add a note to the ledger."""
        original = vars(owner).get(name, _MISSING)  # as `owner` stores it; missing if `owner` inherits it
        bound = getattr(owner, name, _MISSING)  # as an attribute lookup returns it
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
        """Register a function that removes a hook, for hooks that replace no attribute."""
        self._undo.append((api, undo))

    def restore(self, *, except_api: str | None = None) -> None:
        """Remove all hooks, the latest first, except the hooks of `except_api`.

        If other code has replaced a hook, leave the attribute as it is and add a note to the ledger.
        """
        kept_apis = () if except_api is None else (except_api, self.hook_apis.get(except_api, except_api))
        kept: list[tuple[str, Any, str, Any, Any]] = []
        covered = set()  # attributes with a kept hook, which calls the earlier hooks of the attribute, so they stay too
        for replaced in reversed(self._replaced):
            api, owner, name, original, replacement = replaced
            if api in kept_apis or (id(owner), name) in covered:
                kept.append(replaced)
                covered.add((id(owner), name))
            elif vars(owner).get(name) is not replacement:
                self.ledger.note(f"{api} was not restored, because other code has replaced it during profiling.")
            elif original is _MISSING:
                delattr(owner, name)  # the owner inherits the attribute
            else:
                setattr(owner, name, original)
        self._replaced = kept[::-1]
        kept_undo = [(api, undo) for api, undo in self._undo if api in kept_apis]
        for api, undo in reversed(self._undo):
            if api not in kept_apis:
                undo()
        self._undo = kept_undo


def _function_of(original: Any) -> Any:
    """Return the function inside a static or class method, or the object itself."""
    return original.__func__ if isinstance(original, staticmethod | classmethod) else original


def _wrap_like(original: Any, wrapper: Any) -> Any:
    """Return the wrapper as a static or class method if the original is one."""
    return type(original)(wrapper) if isinstance(original, staticmethod | classmethod) else wrapper


def _copy_names(wrapper: Any, original: Any) -> None:
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(wrapper, name, value)
    wrapper.__wrapped__ = original


def _name_of(owner: Any) -> str:
    module = getattr(owner, "__module__", "")
    name = getattr(owner, "__qualname__", getattr(owner, "__name__", type(owner).__name__))
    return f"{module}.{name}" if module else str(name)


OnReturn = Callable[[int, int, Any, tuple[Any, ...], dict[str, Any]], None]  # start, end, result, args, kwargs
CallFilter = Callable[..., bool]  # (*args, **kwargs) -> whether to record the call


def make_hook(
    ledger: Ledger, api: str, original: Callable[..., Any], on_return: OnReturn, should_record: CallFilter | None = None
) -> Callable[..., Any]:
    """Return a hook that calls `original` and then `on_return`.

    While `original` runs, the hooks of nested calls record nothing. The hook does not call `on_return` if
    `should_record` returns False or if the ledger does not record the call.
    """
    begin_hook, end_hook = ledger.begin, ledger.end

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (should_record is not None and not should_record(*args, **kwargs)) or not begin_hook():
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()  # before `on_return`, whose time must not count as time of the script
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
    """Return a hook like `make_hook`, but let hooks of nested calls record too."""

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
