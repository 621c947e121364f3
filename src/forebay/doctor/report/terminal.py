"""The terminal report: diagnosis, cures, parts of a step and other findings in 80 columns."""

from collections.abc import Iterable, Iterator
from itertools import islice

from rich.text import Text

from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.formatting import format_count, format_location, format_percent, format_seconds, to_one_line
from forebay.doctor.report import side_notes
from forebay.doctor.report.colors import color_of_part
from forebay.doctor.report.sentences import (
    cost_share,
    describe_coverage,
    describe_early_end,
    describe_missing_loop,
    describe_outcome,
    describe_step_time,
    describe_verification,
    headline,
    missing_data,
    parts_introduction,
    predictions,
    speedup,
)
from forebay.doctor.report.terminal_layout import (
    bar,
    code_lines,
    fit_width,
    fit_width_left,
    join_lines,
    place_left_and_right,
    wrap_lines,
)
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["ROWS", "WIDTH", "render"]

WIDTH = 80
ROWS = 40  # of a screen; the page and the JSON document have the findings that do not fit
LEAST_WIDTH = 50
MOST_NOTES = 3
MOST_EVIDENCE = 3
MOST_CURES = 2
MOST_CODE = 8  # lines of code per cure
MOST_GPUS = 2
SMALLEST_PART = 0.005  # share of a step; smaller parts are not drawn

_TERMINAL_COLORS = {
    "input": "yellow",
    "upload": "bright_blue",
    "download": "bright_red",
    "compile": "magenta",
    "build": "magenta",
    "run": "green",
    "rest": "bright_black",
}


def render(diagnosis: Diagnosis, *, width: int = WIDTH) -> Text:
    """Render the report as one text."""
    return join_lines(_screen(diagnosis, max(LEAST_WIDTH, min(WIDTH, width))))


def _screen(diagnosis: Diagnosis, width: int) -> list[Text]:
    lines = [*_head(diagnosis, width), *_diagnosis(diagnosis, width)]
    if diagnosis.view.steps is not None:
        lines += [Text(), *_step(diagnosis, width)]
    lines += _side_notes(diagnosis, width)
    notes = list(_notes(diagnosis, width))
    lines += _other_findings(diagnosis, width, room=ROWS - len(lines) - len(notes))
    return lines + notes


def _head(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    capture = diagnosis.view.capture
    ran = f"ran {format_seconds(capture.seconds)}"
    script = fit_width_left(to_one_line(capture.script), width - len(ran) - len("forebay doctor  ") - 2)
    yield from place_left_and_right(
        Text.assemble(("forebay doctor", "bold"), "  ", script), Text(ran, style="dim"), width
    )
    yield Text("─" * width, style="dim")
    if describe_early_end(diagnosis):
        yield from wrap_lines(Text(describe_early_end(diagnosis), style="yellow"), width)
        yield Text()


def _diagnosis(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    """Show the main finding: source line, cost, evidence, and the cures as code."""
    finding = diagnosis.main
    style = "bold yellow" if diagnosis.view.steps is None else "bold green" if finding is None else "bold bright_red"
    yield from wrap_lines(Text(f"{to_one_line(headline(diagnosis))}.", style=style), width)
    if diagnosis.view.steps is None:
        yield from _paragraphs(describe_missing_loop(diagnosis), width, hang=0)
    if finding is None:
        yield from _paragraphs(describe_verification(diagnosis), width)
        return
    yield from wrap_lines(Text(describe_outcome(diagnosis)), width)
    yield from _paragraphs(describe_verification(diagnosis), width)
    yield Text()
    yield from _source_line(diagnosis, finding, width, indent=2)
    share = format_percent(cost_share(diagnosis, finding))
    cost = f"It costs {format_seconds(finding.seconds)} per step ({share} of the step)."
    yield from _paragraphs([cost, *finding.evidence[:MOST_EVIDENCE]], width, indent=2)
    for cure in finding.cures_by_gain[:MOST_CURES]:
        yield Text()
        yield from _cure(diagnosis, cure, width)
        yield from islice(code_lines(cure.code, width, indent=6), MOST_CODE)
    if len(finding.cures) > MOST_CURES:
        yield Text(f"  {format_count(len(finding.cures) - MOST_CURES, 'more cure')}: use --html FILE.", style="dim")


def _cure(diagnosis: Diagnosis, cure: Cure, width: int) -> Iterator[Text]:
    title = Text.assemble(("Cure: ", "green"), to_one_line(cure.title))
    gain = speedup(diagnosis, cure) if cure.gain else ""  # the cure of a warning saves no time
    yield from place_left_and_right(title, Text(gain, style="green"), width, indent=2, hang=6)


def _step(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    view = diagnosis.view
    yield from wrap_lines(Text(to_one_line(describe_step_time(diagnosis))), width)
    yield from wrap_lines(Text(parts_introduction(diagnosis), style="dim"), width)
    whole = sum(view.step_parts.values()) or 1.0
    shown = {name: value for name, value in view.step_parts.items() if value / whole >= SMALLEST_PART}
    longest = max(map(len, shown), default=0)
    for name, value in shown.items():
        columns = width - longest - 19
        yield Text.assemble(
            f"  {name:<{longest}}  ",
            (bar(value / whole, columns), _TERMINAL_COLORS.get(color_of_part(name), "cyan")),
            f"{format_seconds(value):>9} {format_percent(value / whole):>5}",
        )
    yield from _paragraphs([*describe_coverage(diagnosis), *predictions(diagnosis)], width)


def _side_notes(diagnosis: Diagnosis, width: int) -> list[Text]:
    """Describe memory and GPUs, one paragraph each."""
    notes = {
        "Memory": side_notes.describe_memory(diagnosis.view),
        "GPU": "\n".join(side_notes.describe_gpus(diagnosis.view)[:MOST_GPUS]),
    }
    lines = [
        line
        for name, sentences in notes.items()
        for sentence in sentences.splitlines()
        for line in wrap_lines(Text.assemble((f"{name}  ", "bold"), to_one_line(sentence)), width, hang=len(name) + 2)
    ]
    return [Text(), *lines] if lines else []


def _other_findings(diagnosis: Diagnosis, width: int, *, room: int) -> list[Text]:
    """List as many of the other findings as fit."""
    lines: list[Text] = []
    others = diagnosis.findings if diagnosis.main is None else diagnosis.findings[1:]
    first = 1 if diagnosis.main is None else 2
    for number, finding in enumerate(others):
        block = [Text(), *_other_finding(diagnosis, finding, number + first, width)]
        last = number + 1 == len(others)
        if len(lines) + len(block) + (0 if last else 2) > room:
            left = f"{format_count(len(others) - number, 'more finding')}: use --html FILE or --json FILE."
            return [*lines, Text(), *wrap_lines(Text(left, style="dim"), width)]
        lines += block
    return lines


def _other_finding(diagnosis: Diagnosis, finding: Finding, number: int, width: int) -> Iterator[Text]:
    cost = Text(
        f"{format_seconds(finding.seconds)} {format_percent(cost_share(diagnosis, finding)):>5}"
        if finding.seconds
        else "warning"
    )
    style = "bold bright_red" if diagnosis.severity(finding) == "severe" else "bold yellow"
    title = Text.assemble((f"{number} ", style), (to_one_line(finding.title), "bold"))
    yield from place_left_and_right(title, cost, width, hang=2)
    yield from _source_line(diagnosis, finding, width, indent=2)
    if finding.cures:
        yield from _cure(diagnosis, finding.best_cure, width)


def _source_line(diagnosis: Diagnosis, finding: Finding, width: int, *, indent: int) -> Iterator[Text]:
    """Show the source line, shortened to one line of the terminal."""
    if finding.line is None:
        return
    place = fit_width_left(to_one_line(format_location(finding.line, diagnosis.view.capture.script)), width // 2)
    text = fit_width(to_one_line(finding.line.text), width - indent - len(place) - 2)
    yield Text.assemble(" " * indent, (place, "cyan"), f"  {text}" if text else "")


def _notes(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    notes = missing_data(diagnosis)
    if not notes:
        return
    yield Text()
    yield Text("Not measured", style="bold")
    yield from _paragraphs(notes[:MOST_NOTES], width, indent=2, style="yellow")
    if len(notes) > MOST_NOTES:
        yield Text(f"  {format_count(len(notes) - MOST_NOTES, 'more note')}: use --html FILE.", style="dim")


def _paragraphs(texts: Iterable[str], width: int, *, indent: int = 0, hang: int = 2, style: str = "") -> Iterator[Text]:
    for text in texts:
        yield from wrap_lines(Text(to_one_line(text), style=style), width, indent=indent, hang=hang)
