"""The crossings in the terminal report: rows in order of time, then totals by line.

Consecutive crossings of the same call and line share a row.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.crossings import (
    WITHIN_HOST,
    Crossing,
    CrossingTotal,
    crossings_of,
    total_by_line,
    total_consecutive,
)
from forebay.doctor.model.formatting import (
    format_count,
    format_location,
    format_seconds,
    format_timestamp,
    to_one_line,
)
from forebay.doctor.report.terminal_layout import fit_width, fit_width_left, wrap_lines

__all__ = ["render_crossings"]

MAX_ROWS = 20  # in the report of a script without a loop
MAX_ROWS_BESIDE_LOOP = 5  # in the report of a script with a loop
MAX_TOTALS = 3  # rows of totals
_DIRECTIONS = {
    "host to device": "to device",
    "device to host": "to host",
    "device to device": "on device",
    WITHIN_HOST: "on host",
    None: "wait",
}


def render_crossings(view: CaptureView, width: int, *, most_lines: int) -> list[Text]:
    """Return at most `most_lines` lines about crossings; empty if not even one row fits.

    If at least one crossing reaches a device, omit crossings within the host. If none reaches a device and the script
    has a loop, return no lines.
    """
    crossings, most = crossings_of(view), MAX_ROWS if view.steps is None else MAX_ROWS_BESIDE_LOOP
    reaching = [each for each in crossings if each.direction != WITHIN_HOST]
    has_device = any(each.direction for each in reaching)
    if view.steps is not None and not has_device:
        return []
    shown = reaching if has_device else crossings
    groups = total_consecutive(shown)
    for rows in range(min(most, len(groups)), 0, -1):
        lines = _render_lines(view, shown, groups[:rows], width)
        if len(lines) <= most_lines:
            return lines
    return []


def _render_lines(
    view: CaptureView, crossings: Sequence[Crossing], groups: Sequence[tuple[Crossing, CrossingTotal]], width: int
) -> list[Text]:
    """Return a row for each of these groups, and totals of all further crossings."""
    heading = wrap_lines(Text(_heading(view, crossings), style="dim"), width)
    lines = [Text(), *heading, Text(fit_width(_HEADER, width), style="dim")]
    for first, total in groups:
        lines += _render_row(view, total, format_timestamp(first.start), width, show_count=total.count > 1)
    totals = total_by_line(crossings[sum(total.count for _, total in groups) :])
    if totals:
        lines.append(Text(f"  {format_count(sum(total.count for total in totals), 'more crossing')}:", style="dim"))
    for total in totals[:MAX_TOTALS]:
        lines += _render_row(view, total, "", width, show_count=True)
    if len(totals) > MAX_TOTALS:
        hint = f"{format_count(len(totals) - MAX_TOTALS, 'more line')}: use --html FILE or --json FILE."
        lines.append(Text(f"  {hint}", style="dim"))
    return lines


_HEADER = f"{'start':>10}{'size':>11}{'time':>9}  {'':<9}  line and call (*: a side effect)"


def _heading(view: CaptureView, crossings: Sequence[Crossing]) -> str:
    """Return the heading of the rows."""
    if view.steps is not None:
        return "Crossings between host and device outside of the steps:"
    if any(each.direction not in (None, WITHIN_HOST) for each in crossings):
        return "Crossings between host and device, in order of time:"
    return "No data left the host. Conversions and waits, in order of time:"


def _render_row(view: CaptureView, total: CrossingTotal, start: str, width: int, *, show_count: bool) -> Iterator[Text]:
    """Yield one row, or two if line and call do not fit into the first."""
    size = format_nbytes(total.nbytes) if total.nbytes else "-"
    seconds = format_seconds(total.seconds) if total.seconds is not None else "-"
    numbers = f"{start:>10}{size:>11}{seconds:>9}  {_DIRECTIONS[total.direction]:<9}"
    location = to_one_line(format_location(total.line, view.capture.script)) if total.line else ""
    implied = " *" if total.is_implied else ""
    call = f"{to_one_line(total.api)}{implied}{f' x {total.count:,}' if show_count else ''}"
    if cell_len(f"{numbers}  {location}  {call}") <= width:
        yield Text.assemble(f"{numbers}  ", (location, "cyan"), "  " if location else "", call)
        return
    yield Text(numbers.rstrip())
    location = fit_width_left(location, (width - 4) * 2 // 3)
    call = fit_width_left(call, width - 6 - cell_len(location))  # the end of a call is more specific than its beginning
    yield Text.assemble(" " * 4, (location, "cyan"), "  " if location else "", call)
