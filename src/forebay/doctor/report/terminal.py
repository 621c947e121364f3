"""One screen of 80 columns: the verdict, what a step is made of, the causes with their lines and cures."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from forebay.doctor.analyse.finding import Finding
from forebay.doctor.analyse.verdict import Verdict
from forebay.doctor.events import Line
from forebay.doctor.report.words import interval, percent, seconds

__all__ = ["render"]

BAR = 28  # columns of the longest bar
MOST_FINDINGS = 5


def render(verdict: Verdict, *, width: int = 80) -> RenderableType:
    return Group(*_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[RenderableType]:
    capture, case = verdict.case.capture, verdict.case
    yield Text.assemble(("forebay doctor  ", "bold"), capture.script, f"  ({capture.ended})")
    if case.steps is None:
        yield Text("No loop was found: nothing came again often enough to be called a step.", style="yellow")
        yield from _notes(verdict)
        return
    yield _pace(verdict)
    yield Text()
    yield _headline(verdict)
    yield Text()
    yield _parts(verdict)
    for finding in verdict.findings[:MOST_FINDINGS]:
        yield Text()
        yield from _finding(verdict, finding)
    if len(verdict.findings) > MOST_FINDINGS:
        yield Text(f"\nand {len(verdict.findings) - MOST_FINDINGS} more; --json FILE has all of them.", style="dim")
    yield from _notes(verdict)


def _pace(verdict: Verdict) -> Text:
    case = verdict.case
    assert case.steps is not None
    told = f"{seconds(case.step_seconds)} a step, over {len(case.steps)} steady steps that end at {_where(verdict)}"
    if case.overhead is None:
        return Text(f"{told}; what watching cost was not measured", style="dim")
    return Text(f"{told}; watching made them {percent(case.overhead)} longer", style="dim")


def _where(verdict: Verdict) -> str:
    assert verdict.case.steps is not None
    _, api, number = verdict.case.steps.anchor
    line = verdict.case.line(number)
    return f"{api} ({_short(line)})" if line else api


def _headline(verdict: Verdict) -> Text:
    finding = verdict.main
    if finding is None:
        return Text("Nothing holds this script back that the doctor knows of.", style="bold green")
    best = max(finding.cures, key=lambda cure: cure.win)
    gain = interval(best.low, best.high, verdict.case.step_seconds)
    return Text.assemble((f"{finding.title}.", "bold red"), f" Cured, a step is {gain} as fast.")


def _parts(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 1))
    whole = sum(verdict.case.parts.values()) or 1.0
    for name, value in verdict.case.parts.items():
        if value / whole >= 0.005:
            table.add_row(
                name,
                Text("█" * max(1, round(BAR * value / whole)), style="cyan"),
                percent(value / whole),
                seconds(value),
            )
    return table


def _finding(verdict: Verdict, finding: Finding) -> Iterator[RenderableType]:
    cost = f"{seconds(finding.seconds)} a step, {percent(finding.seconds / verdict.case.step_seconds)}"
    style = "red" if verdict.severity(finding) == "severe" else "yellow"
    yield Text.assemble(("■ ", style), (finding.title, "bold"), f"  ({cost})")
    if finding.line is not None:
        yield Padding(Text.assemble((_short(finding.line), "cyan"), f"  {finding.line.text}"), (0, 0, 0, 2))
    for evidence in finding.evidence:
        yield Padding(Text(evidence, style="dim"), (0, 0, 0, 2))
    for cure in finding.cures:
        gain = interval(cure.low, cure.high, verdict.case.step_seconds)
        yield Padding(Text.assemble("cure: ", cure.title, (f"  {gain} as fast", "green")), (0, 0, 0, 2))
        yield Padding(Text(cure.code), (0, 0, 0, 6))


def _notes(verdict: Verdict) -> Iterator[RenderableType]:
    notes = [*verdict.case.capture.notes, *verdict.silent]
    if notes:
        yield Text("\nNot seen", style="bold")
        yield from (Padding(Text(note, style="yellow"), (0, 0, 0, 2)) for note in notes)


def _short(line: Line) -> str:
    path = Path(line.file)
    near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name
    return f"{near}:{line.number}"
