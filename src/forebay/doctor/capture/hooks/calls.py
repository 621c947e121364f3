"""Helpers for hooks that need more than `Patches.hook`.

Such a hook may have a condition, or let other hooks record inside the call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_hook, make_open_hook
from forebay.doctor.model.events import EventKind

__all__ = ["CallHook", "HookedCall", "hook_call", "record_call", "run_guarded"]


class HookedCall(NamedTuple):
    """One call that has returned.

    A tuple, because hooks create many of these objects and tuples are fast to create.
    """

    start: int  # nanoseconds
    end: int  # nanoseconds
    result: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that the caller passed by position or by keyword, or `default`."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)


@dataclass(frozen=True, slots=True)
class CallHook:
    """What a hook does at each call of a function."""

    api: str  # the name of the function in events and in notes of the report
    on_return: Callable[[HookedCall], None]  # called when the function has returned
    should_record: Callable[..., bool] | None = None  # gets the arguments of a call; None: accept every call
    nested: Literal["recorded", "ignored"] = "ignored"  # whether other hooks record calls inside this call


def hook_call(patches: Patches, owner: Any, name: str, hook: CallHook) -> None:
    """Replace `owner.name` by a hook that passes calls to `hook.on_return`.

    The hook skips calls that `hook.should_record` rejects, and calls inside a hook that ignores nested calls.
    """
    wrap = make_hook if hook.nested == "ignored" else make_open_hook

    def wrap_original(original: Any) -> Any:
        return wrap(
            patches.ledger, hook.api, original, lambda *call: hook.on_return(HookedCall(*call)), hook.should_record
        )

    patches.replace(owner, name, wrap_original, api=hook.api)


def run_guarded(ledger: Ledger, api: str, function: Callable[..., object], *args: Any) -> None:
    """Call `function`, which is a part of a hook.

    An error in `function` becomes a note in the report, because the script must not see errors of hooks.
    """
    try:
        function(*args)
    except Exception as error:
        ledger.note_failure(api, error)


def record_call(
    ledger: Ledger,
    kind: EventKind,
    api: str,
    call: HookedCall,
    *,
    nbytes: int = 0,
    detail: dict[str, Any] | None = None,
) -> int:
    """Write an event for a call, and return the index of the calling line.

    If no line of the script is on the stack, as in a thread of the framework, write nothing and return -1.
    """
    line = ledger.lines.current_line()
    if line >= 0:
        ledger.write((kind, api, line), call.start, call.end, nbytes, detail=detail)
    return line
