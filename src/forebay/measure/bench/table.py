"""Results as tables for a terminal with 80 columns."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from forebay.measure.bench.model import PerformanceTarget, ResultColumn
from forebay.measure.bench.results import BenchResults, CaseResult, ResultRow

__all__ = ["render"]

# From this CPU steal share on, the table shows a warning. On a machine without other load, the share was 0.01 to 0.02.
HIGH_CPU_STEAL = 0.05


def render(results: BenchResults, *, targets: bool = False) -> Iterator[RenderableType]:
    """Yield the parts of the report: machine, one table per case, and footnotes.

    With `targets`, a table of performance targets follows each case that has some.
    """
    yield _heading(results)
    for result in results.cases:
        yield Text(f"\n{result.case.name}: {result.case.title}", style="bold")
        yield _case_table(result)
        yield Text(result.case.meaning, style="dim")
        yield from _unmeasured_entries(result)
        yield from _cpu_steal_warning(result)
        if targets and result.case.targets:
            yield _target_table(result)
    yield from _footnotes(results)


def format_amount(value: float, unit: str) -> str:
    """Format a number with about three digits; rows/s in thousands (k) or millions (M).

    >>> format_amount(9_440_000, "rows/s"), format_amount(0.71, "us"), format_amount(1.216, "x")
    ('9.44 M', '0.71', '1.22')
    """
    if unit == "rows/s":
        scale, letter = next((pair for pair in ((1e6, " M"), (1e3, " k")) if value >= pair[0]), (1, ""))
        return _format_three_digits(value / scale) + letter
    return _format_three_digits(value)


def _format_three_digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _heading(results: BenchResults) -> Text:
    machine, settings = results.machine, results.settings
    memory = f", {machine['memory_nbytes'] / 2**30:.0f} GiB" if machine.get("memory_nbytes") else ""
    gpu = f"{machine['gpu']} (CUDA {machine['cuda']}), " if machine.get("gpu") else ""
    lines = [
        f"{gpu}{machine['cpu']}, {machine['cores']} cores{memory}, {machine['system']}",
        f"Python {machine['python']}, " + ", ".join(f"{name} {version}" for name, version in results.versions.items()),
        f"{settings.repeats} rounds of {settings.seconds:g} s each, after {settings.warm_up_seconds:g} s of warm-up; "
        "medians ± half the range",
    ]
    origin = [f"measured at {results.date}"] * bool(results.date)
    origin += [f"commit {results.commit}"] * bool(results.commit)
    if origin:
        lines.append(", ".join(origin))
    if results.quick:
        lines.append("--quick: less data and less time, so these numbers are only a first impression")
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


def _cells(result: CaseResult, row: ResultRow) -> Iterator[str]:
    yield row.label
    for position, column in enumerate(result.case.columns):
        if row.status != "measured":
            yield row.status if position == 0 else ""
        else:
            yield _amount_cell(row, column)
        if _has_ratio(result, column):
            yield _ratio_cell(result, row, column)


def _amount_cell(row: ResultRow, column: ResultColumn) -> str:
    value, spread = row.median(column.name), row.spread(column.name)
    if value is None:
        return ""
    unit = "" if column.unit in ("rows/s", "GB/s", "cores") else f" {column.unit}"
    # Columns without a ratio may have values near zero, whose relative spread means nothing. One sample has no spread.
    has_spread = spread is not None and column.ratio and len(row.samples[column.name]) > 1
    return format_amount(value, column.unit) + unit + (f" ±{spread:3.0%}" if has_spread else "")


def _ratio_cell(result: CaseResult, row: ResultRow, column: ResultColumn) -> str:
    ratio = result.ratio(row.label, result.case.baseline or "", column.name)
    return "" if ratio is None else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}"


def _has_ratio(result: CaseResult, column: ResultColumn) -> bool:
    return column.ratio and result.case.baseline is not None


def _unmeasured_entries(result: CaseResult) -> Iterator[RenderableType]:
    labels_by_reason: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        if row.status in ("failed", "skipped"):
            labels_by_reason.setdefault((row.status, row.reason), []).append(row.label)
    for (status, reason), labels in labels_by_reason.items():
        yield Text(f"{', '.join(labels)} {status}: {reason}", style="red" if status == "failed" else "dim")


def _cpu_steal_warning(result: CaseResult) -> Iterator[RenderableType]:
    if result.cpu_steal_share is not None and result.cpu_steal_share >= HIGH_CPU_STEAL:
        yield Text(
            f"Other processes took {result.cpu_steal_share:.0%} of a core between the rounds. "
            "Without them, this machine is faster.",
            style="yellow",
        )


def _target_table(result: CaseResult) -> RenderableType:
    table = Table("target", box=None, pad_edge=False)
    table.add_column("required", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for target in result.case.targets:
        value, is_met = result.measured(target), result.is_met(target)
        status = {True: "met", False: "missed", None: "not measured"}[is_met]
        measured = "" if value is None else f"{value:.2f}"
        table.add_row(
            _target_name(target), _required_value(target), measured, status, style="yellow" if is_met is False else ""
        )
    return Padding(table, (1, 0, 0, 2))


def _target_name(target: PerformanceTarget) -> str:
    return f"{target.of}, {target.column}" + (f", over {target.over}" if target.over else "")


def _required_value(target: PerformanceTarget) -> str:
    return f">= {target.at_least:g}" if target.at_least is not None else f"<= {target.at_most:g}"


def _footnotes(results: BenchResults) -> Iterator[RenderableType]:
    yield Text()
    if results.consumer:
        yield Text(
            f"busy: the consumer runs {results.consumer} after every batch. step: the time of these operations while "
            "the loader runs, divided by their time without a loader.",
            style="dim",
        )
    if any(result.case.baseline for result in results.cases):
        yield Text("ratio: the number divided by that of the first row; the median of all rounds.", style="dim")
    labels_by_install: dict[str, dict[str, None]] = {}  # install command -> labels, each once and in order
    for row in results.rows:
        if row.status == "not installed":
            labels_by_install.setdefault(row.reason, {})[row.label] = None
    for install, labels in labels_by_install.items():
        yield Text(f"not installed: {', '.join(labels)} ({install})")
