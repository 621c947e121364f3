"""The results as tables for a terminal, readable at 80 columns."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from forebay.measure.bench.model import Column, Target
from forebay.measure.bench.others import MUCH
from forebay.measure.bench.results import CaseResult, Results, Row

__all__ = ["render"]


def render(results: Results, *, targets: bool = False) -> Iterator[RenderableType]:
    """Everything there is to print, from the machine to what is not installed."""
    yield _heading(results)
    for result in results.cases:
        yield Text(f"\n{result.case.name}: {result.case.title}", style="bold")
        yield _case_table(result)
        yield Text(result.case.meaning, style="dim")
        yield from _troubles(result)
        yield from _others(result)
        if targets and result.case.targets:
            yield _target_table(result)
    yield from _footnotes(results)


def format_amount(value: float, unit: str) -> str:
    """A number as short as a column wants it.

    >>> format_amount(9_440_000, "rows/s"), format_amount(0.71, "us"), format_amount(1.216, "x")
    ('9.44 M', '0.71', '1.22')
    """
    if unit == "rows/s":
        scale, letter = next((pair for pair in ((1e6, " M"), (1e3, " k")) if value >= pair[0]), (1, ""))
        return _three_digits(value / scale) + letter
    return _three_digits(value)


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _heading(results: Results) -> Text:
    machine, pace = results.machine, results.pace
    memory = f", {machine['memory_nbytes'] / 2**30:.0f} GiB" if machine.get("memory_nbytes") else ""
    gpu = f"{machine['gpu']} (CUDA {machine['cuda']}), " if machine.get("gpu") else ""
    lines = [
        f"{gpu}{machine['cpu']}, {machine['cores']} cores{memory}, {machine['system']}",
        f"Python {machine['python']}, " + ", ".join(f"{name} {version}" for name, version in results.versions.items()),
        f"{pace.repeats} rounds of {pace.seconds:g} s a consumer after {pace.warm_up_seconds:g} s of warm-up; "
        "median, ± half the range",
    ]
    if results.quick:
        lines.append("--quick: less data and less time; for a first look, not for a claim")
    return Text("\n".join(lines))


def _case_table(result: CaseResult) -> Table:
    table = Table("", box=None, pad_edge=False)
    for column in result.case.columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
        if _has_ratio(result, column):
            table.add_column("ratio", justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(*_cells(result, row), style="bold" if row.label.startswith("forebay") else "")
    return table


def _cells(result: CaseResult, row: Row) -> Iterator[str]:
    yield row.label
    for place, column in enumerate(result.case.columns):
        if row.status != "measured":
            yield row.status if place == 0 else ""
        else:
            yield _amount_cell(row, column)
        if _has_ratio(result, column):
            yield _ratio_cell(result, row, column)


def _amount_cell(row: Row, column: Column) -> str:
    value, spread = row.median(column.name), row.spread(column.name)
    if value is None:
        return ""
    unit = "" if column.unit in ("rows/s", "GB/s", "cores") else f" {column.unit}"
    # A spread around nought says nothing, and a single sample has none.
    shown = spread is not None and column.ratio and len(row.samples[column.name]) > 1
    return format_amount(value, column.unit) + unit + (f" ±{spread:3.0%}" if shown else "")


def _ratio_cell(result: CaseResult, row: Row, column: Column) -> str:
    ratio = result.ratio(row.label, result.case.baseline or "", column.name)
    return "" if ratio is None else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}"


def _has_ratio(result: CaseResult, column: Column) -> bool:
    return column.ratio and result.case.baseline is not None


def _troubles(result: CaseResult) -> Iterator[RenderableType]:
    troubles: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        if row.status in ("failed", "skipped"):
            troubles.setdefault((row.status, row.reason), []).append(row.label)
    for (status, reason), labels in troubles.items():
        yield Text(f"{', '.join(labels)} {status}: {reason}", style="red" if status == "failed" else "dim")


def _others(result: CaseResult) -> Iterator[RenderableType]:
    if result.taken_share is not None and result.taken_share >= MUCH:
        yield Text(
            f"Others took {result.taken_share:.0%} of a core's time between rounds: this machine alone is faster.",
            style="yellow",
        )


def _target_table(result: CaseResult) -> RenderableType:
    table = Table("target", box=None, pad_edge=False)
    table.add_column("asked", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for target in result.case.targets:
        value, met = result.measured(target), result.met(target)
        verdict = {True: "met", False: "missed", None: "not measured"}[met]
        measured = "" if value is None else f"{value:.2f}"
        table.add_row(_target_name(target), _asked(target), measured, verdict, style="yellow" if met is False else "")
    return Padding(table, (1, 0, 0, 2))


def _target_name(target: Target) -> str:
    return f"{target.of}, {target.column}" + (f", over {target.over}" if target.over else "")


def _asked(target: Target) -> str:
    return f">= {target.at_least:g}" if target.at_least is not None else f"<= {target.at_most:g}"


def _footnotes(results: Results) -> Iterator[RenderableType]:
    yield Text()
    if results.consumer:
        yield Text(
            f"busy: after every batch the consumer does {results.consumer}; step: the time of that beside the loader "
            "over its time alone. ratio: to the first row of the table, round by round.",
            style="dim",
        )
    elif any(result.case.baseline for result in results.cases):
        yield Text("ratio: to the first row of the table, round by round.", style="dim")
    missing: dict[str, dict[str, None]] = {}
    for row in results.rows:
        if row.status == "not installed":
            missing.setdefault(row.reason, {})[row.label] = None
    for install, labels in missing.items():
        yield Text(f"not installed: {', '.join(labels)} ({install})")
