"""Helpers for hooks that need more than `Patches.hook`, such as a condition or nested recording."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_hook, make_open_hook
from forebay.doctor.model.events import EventKind

__all__ = ["HookedCall", "hook_call", "record_call", "run_guarded"]


class HookedCall(NamedTuple):
    """One call that has returned. A tuple, because hooks create many of these objects."""

    start: int  # nanoseconds
    end: int  # nanoseconds
    result: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that the caller passed by position or by keyword, or `default`."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)


def hook_call(
    patches: Patches,
    owner: Any,
    name: str,
    *,
    api: str,
    on_return: Callable[[HookedCall], None],
    should_record: Callable[..., bool] | None = None,
    nested: Literal["recorded", "ignored"] = "ignored",
) -> None:
    """Replace `owner.name` by a hook that passes each call to `on_return`.

    `should_record` gets the arguments of a call and returns whether to record it. `nested` says whether hooks inside
    the call record too.
    """
    wrap = make_hook if nested == "ignored" else make_open_hook

    def wrap_original(original: Any) -> Any:
        return wrap(patches.ledger, api, original, lambda *call: on_return(HookedCall(*call)), should_record)

    patches.replace(owner, name, wrap_original, api=api)


def run_guarded(ledger: Ledger, api: str, function: Callable[..., None], *args: Any) -> None:
    """Call `function`, a part of a hook.

    Its error becomes a note, because the script must not see it.
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
) -> None:
    """Write an event for a call.

    Do nothing if no user line is on the stack, as in a thread of the framework.
    """
    line = ledger.lines.current_line()
    if line >= 0:
        ledger.write(kind, api, line, call.start, call.end, nbytes, detail=detail)
