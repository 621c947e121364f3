"""Helpers for hooks that `Patches.hook` cannot express: nested calls recorded too, or only some calls recorded."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_hook, make_open_hook
from forebay.doctor.model.events import EventKind

__all__ = ["HookedCall", "hook_call", "record_call", "run_guarded"]


class HookedCall(NamedTuple):
    """One call that has returned. It is a tuple, because hooks create many of them."""

    start: int  # nanoseconds
    end: int
    result: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that was passed by position or by keyword."""
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
    """Pass each call of `owner.name` to `on_return`. `nested` says whether hooks inside the call record too."""
    make_wrapper = make_hook if nested == "ignored" else make_open_hook

    def make(original: Any) -> Any:
        return make_wrapper(patches.ledger, api, original, lambda *call: on_return(HookedCall(*call)), should_record)

    patches.replace(owner, name, make, api=api)


def run_guarded(ledger: Ledger, api: str, act: Callable[..., None], *args: Any) -> None:
    """Run a part of a hook; an error becomes a note, because the script must not see it."""
    try:
        act(*args)
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
    """Write an event for a call, unless no user line caused it, as in a thread of the framework."""
    line = ledger.lines.current_line()
    if line >= 0:
        ledger.write(kind, api, line, call.start, call.end, nbytes, detail=detail)
