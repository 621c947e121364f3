"""Calls watched where `Patches.watch` does not do: what is called inside is to be seen too, or only some count."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked, hooked_open
from forebay.doctor.model.events import Kind

__all__ = ["Call", "quietly", "watch_call", "write"]


class Call(NamedTuple):
    """One call that has ended. A tuple, for it is made often."""

    start: int
    end: int
    result: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Whatever was given, in its place or by its name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)


def watch_call(
    patches: Patches,
    owner: Any,
    name: str,
    *,
    api: str,
    then: Callable[[Call], None],
    when: Callable[..., bool] | None = None,
    inner: Literal["seen", "hidden"] = "hidden",
) -> None:
    """Let `then` write down calls of `owner.name` that `when` finds worth it, and what they call in turn if `seen`."""
    watched = hooked if inner == "hidden" else hooked_open

    def make(original: Any) -> Any:
        return watched(patches.ledger, api, original, lambda *told: then(Call(*told)), when)

    patches.replace(owner, name, make, api=api)


def quietly(ledger: Ledger, api: str, act: Callable[..., None], *args: Any) -> None:
    """What fails in a hook is a note in the report, once, and never the user's trouble."""
    try:
        act(*args)
    except Exception as error:
        ledger.failed(api, error)


def write(
    ledger: Ledger, kind: Kind, api: str, call: Call, *, nbytes: int = 0, detail: dict[str, Any] | None = None
) -> None:
    """Write a call down, unless none of the user's lines asked for it: a framework's own thread did."""
    line = ledger.lines.here()
    if line >= 0:
        ledger.write(kind, api, line, call.start, call.end, nbytes, detail)
