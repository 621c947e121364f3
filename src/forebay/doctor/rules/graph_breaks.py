"""The rule for functions that `torch.compile` splits into several graphs.

At a graph break, the compiled function returns to Python, for example to print, to read a value back, to branch on a
tensor, or to call a function that the compiler does not know. The compiler fuses no kernels across a break, and the
host launches each graph separately.
"""

from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind, LedgerEvent, Line
from forebay.doctor.model.formatting import format_count
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.wording import location

__all__ = ["examine"]

MAX_NAMED = 3  # graph breaks that the evidence names
_CODE = (
    'TORCH_LOGS="graph_breaks" python train.py   # shows each break with its reason\n'
    "torch.compile(step, fullgraph=True)         # raises an error at the first break\n"
    "# move prints and .item() after the compiled call; torch.where or torch.cond instead of `if tensor:`"
)


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a warning if a compiled function in the loop has graph breaks.

    The capture does not show what the breaks cost.
    """
    is_called = any(site.in_loop and site.api == "compiled function" for site in view.sites_of(EventKind.RUN))
    breaks = [event for event in view.events_of(EventKind.COMPILE) if _break_of(event) >= 0]
    if not is_called or not view.step_seconds or not breaks:
        return
    lines = Counter(_break_of(event) for event in breaks)
    named = [view.line(index) for index in lines]
    yield Finding(
        rule="graph_breaks",
        title=f"torch.compile splits the step at {format_count(len(lines), 'graph break')}",
        line=next((line for line in named if line is not None), None),
        seconds=0.0,
        cures=(Cure("keep the step in one graph", _CODE, basis="the recorded steps do not show what this cure saves"),),
        evidence=(
            f"Graph breaks: {_name_breaks(view, named, breaks)}.",
            "Kernels on both sides of a break are not fused, and Python runs between the graphs.",
        ),
    )


def _break_of(event: LedgerEvent) -> int:
    """Return the line index of the graph break that caused a compilation, or -1."""
    index = (event.detail or {}).get("graph_break")
    return index if isinstance(index, int) else -1


def _name_breaks(view: CaptureView, lines: list[Line | None], breaks: list[LedgerEvent]) -> str:
    """Return the places of the first MAX_NAMED breaks, with the reasons that PyTorch reports."""
    reasons = {_break_of(event): str((event.detail or {}).get("break_reason") or "") for event in breaks}
    places = []
    for line, reason in list(zip(lines, reasons.values(), strict=True))[:MAX_NAMED]:
        place = location(view, line, "a line of a library")
        places.append(f"{place} ({reason})" if reason else place)
    more = len(lines) - len(places)
    return ", ".join(places) + (f" and {more} more" if more else "")
