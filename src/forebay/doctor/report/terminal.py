"""The terminal report of one run: main finding, cures, parts of a step, other findings."""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from forebay.doctor.analyse.host_lines import run_lines
from forebay.doctor.analyse.phases import parts_of_step
from forebay.doctor.analyse.step_lines import step_lines
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import format_count, format_location, format_percent, format_seconds, to_one_line
from forebay.doctor.report import side_notes
from forebay.doctor.report.colors import color_of_part
from forebay.doctor.report.missing_loop import describe_early_end, describe_missing_loop
from forebay.doctor.report.sentences import (
    HEALTHY,
    cost_seconds,
    cost_share,
    describe_cost,
    describe_coverage,
    describe_missing_data,
    describe_outcome,
    describe_parts,
    describe_predictions,
    describe_step_time,
    describe_verification,
    format_cure_speedup,
    format_headline,
)
from forebay.doctor.report.step_shares import merge_small_parts
from forebay.doctor.report.terminal_crossings import render_crossings
from forebay.doctor.report.terminal_layout import (
    draw_bar,
    fit_width,
    fit_width_left,
    join_lines,
    place_left_and_right,
    wrap_code,
    wrap_lines,
)
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["ROWS", "WIDTH", "render"]

WIDTH = 80  # columns
MIN_WIDTH = 50  # columns
ROWS = 40  # lines of the report; findings that do not fit are only in the HTML page and the JSON document
# Limits of what the report shows:
MAX_NOTES = 3  # sentences about missing data
MAX_EVIDENCE = 3  # sentences of the main finding
MAX_CURES = 2  # of the main finding
MAX_CODE = 20  # lines of code per cure
MAX_GPUS = 2
MAX_HOST_LINES = 3
MIN_HOST_LINE = 0.05  # share of a step; the report shows only the sum of shorter lines
MIN_PART = 0.005  # share of a step; the report shows only the sum of smaller parts

_TERMINAL_COLORS = {  # color name of colors.py -> Rich style
    "input": "yellow",
    "upload": "bright_blue",
    "download": "bright_red",
    "compile": "magenta",
    "build": "magenta",
    "run": "green",
    "rest": "bright_black",
}


def render(diagnosis: Diagnosis, *, width: int = WIDTH) -> Text:
    """Render the report as one text. `width` is the number of columns of the terminal."""
    return join_lines(_render_lines(diagnosis, max(MIN_WIDTH, min(WIDTH, width))))


def _render_lines(diagnosis: Diagnosis, width: int, *, by_line: bool = True) -> list[Text]:
    """Return the lines of the report.

    With `by_line`, include the time of a step by line, unless the other findings then do not fit into the report.
    """
    lines = [*_render_head(diagnosis, width), *_render_main_finding(diagnosis, width)]
    if diagnosis.view.steps is not None:
        lines += [Text(), *_render_step(diagnosis, width, by_line=by_line)]
    side_lines, notes = _render_side_notes(diagnosis, width), list(_render_missing_data(diagnosis, width))
    side_lines = [*_render_run_lines(diagnosis, width), *side_lines]
    if diagnosis.view.steps is None:  # without a step time, crossings come first: they are the main part of the report
        lines += render_crossings(diagnosis.view, width, most_lines=ROWS - len(lines) - len(side_lines) - len(notes))
    lines += side_lines
    others = _render_other_findings(diagnosis, width, most_lines=ROWS - len(lines) - len(notes))
    if by_line and others != _render_other_findings(diagnosis, width, most_lines=ROWS):
        return _render_lines(diagnosis, width, by_line=False)
    lines += others
    if diagnosis.view.steps is not None:
        lines += render_crossings(diagnosis.view, width, most_lines=ROWS - len(lines) - len(notes))
    return lines + notes


def _render_head(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    capture = diagnosis.view.capture
    duration = f"ran {format_seconds(capture.seconds)}"
    script = fit_width_left(to_one_line(capture.script), width - len(duration) - len("forebay doctor  ") - 2)
    yield from place_left_and_right(
        Text.assemble(("forebay doctor", "bold"), "  ", script), Text(duration, style="dim"), width
    )
    yield Text("─" * width, style="dim")
    if describe_early_end(diagnosis):
        yield from wrap_lines(Text(describe_early_end(diagnosis), style="yellow"), width)
        yield Text()


def _render_main_finding(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    """Yield the lines about the main finding: source line, cost, evidence, and cures with code."""
    finding = diagnosis.main
    headline = format_headline(diagnosis)
    style = "bold bright_red" if finding is not None else "bold green" if headline == HEALTHY else "bold yellow"
    yield from wrap_lines(Text(f"{to_one_line(headline)}.", style=style), width)
    if diagnosis.view.steps is None:
        yield from _wrap_paragraphs(describe_missing_loop(diagnosis), width, hang=0)
    if finding is None:
        yield from _wrap_paragraphs(describe_verification(diagnosis), width)
        return
    yield from wrap_lines(Text(describe_outcome(diagnosis)), width)
    yield from _wrap_paragraphs(describe_verification(diagnosis), width)
    yield Text()
    yield from _render_source_line(diagnosis, finding, width, indent=2)
    yield from _wrap_paragraphs([describe_cost(diagnosis, finding), *finding.evidence[:MAX_EVIDENCE]], width, indent=2)
    for cure in finding.cures_by_gain[:MAX_CURES]:
        yield Text()
        yield from _render_cure(diagnosis, cure, width)
        lines = [*wrap_code(cure.code, width, indent=6)]
        yield from lines[:MAX_CODE]
        if len(lines) > MAX_CODE:
            yield Text(f"      {format_count(len(lines) - MAX_CODE, 'more line')}: use --html FILE.", style="dim")
    if len(finding.cures) > MAX_CURES:
        yield Text(f"  {format_count(len(finding.cures) - MAX_CURES, 'more cure')}: use --html FILE.", style="dim")


def _render_cure(diagnosis: Diagnosis, cure: Cure, width: int) -> Iterator[Text]:
    title = Text.assemble(("Cure: ", "green"), to_one_line(cure.title))
    gain = format_cure_speedup(diagnosis, cure) if cure.gain else ""  # the cure of a warning saves no time
    yield from place_left_and_right(title, Text(gain, style="green"), width, indent=2, hang=6)


def _render_step(diagnosis: Diagnosis, width: int, *, by_line: bool) -> Iterator[Text]:
    view = diagnosis.view
    yield from wrap_lines(Text(to_one_line(describe_step_time(diagnosis))), width)
    yield from wrap_lines(Text(describe_parts(diagnosis), style="dim"), width)
    all_parts = parts_of_step(view)
    total = sum(all_parts.values()) or 1.0
    parts = merge_small_parts(all_parts, MIN_PART)
    name_width = max(map(len, parts), default=0)
    for name, seconds in parts.items():
        bar_width = width - name_width - 19  # the other columns and the spaces take 19 characters
        yield Text.assemble(
            f"  {name:<{name_width}}  ",
            (draw_bar(seconds / total, bar_width), _TERMINAL_COLORS.get(color_of_part(name), "cyan")),
            f"{format_seconds(seconds):>9} {format_percent(seconds / total):>5}",
        )
    if by_line:
        yield from _render_step_lines(diagnosis, width)
    yield from _wrap_paragraphs([*describe_coverage(diagnosis), *describe_predictions(diagnosis)], width)


def _render_step_lines(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    """Yield rows for the longest lines of a step, and for the rest of it.

    The shares of all rows add up to the step.
    """
    view, found = diagnosis.view, step_lines(diagnosis.view)
    longest = [each for each in found.lines if each.seconds >= MIN_HOST_LINE * view.step_seconds]
    longest = longest[:MAX_HOST_LINES]
    if not longest:
        return
    yield Text("Time of the loop in a step, by line:", style="dim")
    for each in longest:
        yield from _render_time(_describe_line(diagnosis, each.line), each.seconds, view.step_seconds, width)
    others = sum(each.seconds for each in found.lines[len(longest) :]) + found.other_seconds
    yield from _render_time("other lines", others, view.step_seconds, width)
    yield from _render_time("no line of the script", found.unknown_seconds, view.step_seconds, width)


def _render_run_lines(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    """Yield rows for the longest lines of a run, and for the rest of it.

    The shares of all rows add up to the run.
    """
    lines, seconds = run_lines(diagnosis.view), diagnosis.view.capture.seconds
    if not lines or not seconds:
        return
    yield Text()
    yield Text("Time of the run, by line:", style="dim")
    for each in lines[:MAX_HOST_LINES]:
        yield from _render_time(_describe_line(diagnosis, each.line), each.seconds, seconds, width)
    others = sum(each.seconds for each in lines[MAX_HOST_LINES:])
    if others:
        count = format_count(len(lines) - MAX_HOST_LINES, "other line")
        yield from _render_time(count, others, seconds, width)
    yield from _render_time("no line of the script", seconds - sum(each.seconds for each in lines), seconds, width)


def _describe_line(diagnosis: Diagnosis, line: Line) -> str:
    location = format_location(line, diagnosis.view.capture.script)
    return f"{to_one_line(location)}  {to_one_line(line.text)}".rstrip()


def _render_time(text: str, seconds: float, total: float, width: int) -> Iterator[Text]:
    """Yield a row with a time and its share of `total`, unless this reads 0%."""
    share = format_percent(seconds / total)
    if share != format_percent(0):
        time = Text(f"{format_seconds(seconds)} {share:>5}")
        yield from place_left_and_right(Text(fit_width(text, width - len(time) - 4)), time, width, indent=2)


def _render_side_notes(diagnosis: Diagnosis, width: int) -> list[Text]:
    """Return the lines about cores, memory and GPUs."""
    notes = {
        "Cores": side_notes.describe_other_programs(diagnosis.view),
        "Memory": side_notes.describe_memory(diagnosis.view),
        "GPU": "\n".join(side_notes.describe_gpus(diagnosis.view)[:MAX_GPUS]),
    }
    lines = [
        line
        for name, sentences in notes.items()
        for sentence in sentences.splitlines()
        for line in wrap_lines(Text.assemble((f"{name}  ", "bold"), to_one_line(sentence)), width, hang=len(name) + 2)
    ]
    return [Text(), *lines] if lines else []


def _render_other_findings(diagnosis: Diagnosis, width: int, *, most_lines: int) -> list[Text]:
    """Return the lines about all findings except the main one, at most `most_lines`.

    If some findings do not fit, the last line states how many.
    """
    lines: list[Text] = []
    others = diagnosis.findings if diagnosis.main is None else diagnosis.findings[1:]
    first_number = 1 if diagnosis.main is None else 2
    for index, finding in enumerate(others):
        block = [Text(), *_render_other_finding(diagnosis, finding, first_number + index, width)]
        hint_lines = 0 if index + 1 == len(others) else 2  # an empty line, and the number of omitted findings
        if len(lines) + len(block) + hint_lines > most_lines:
            return [*lines, *_render_omitted(diagnosis, others[index:], width, most_lines=most_lines - len(lines))]
        lines += block
    return lines


def _render_omitted(diagnosis: Diagnosis, findings: Sequence[Finding], width: int, *, most_lines: int) -> list[Text]:
    """Return an empty line and the number of omitted findings, also the title of the first one if it fits."""
    first, count = findings[0], format_count(len(findings), "more finding")
    line = format_location(first.line, diagnosis.view.capture.script) if first.line is not None else ""
    named = (
        f"{count}, first: {' '.join(filter(None, (line, to_one_line(first.title))))}. Use --html FILE or --json FILE."
    )
    short = f"{count}: use --html FILE or --json FILE."
    hints = ([Text(), *wrap_lines(Text(hint, style="dim"), width)] for hint in (named, short))
    *fitting, shortest = hints
    return next((hint for hint in fitting if len(hint) <= most_lines), shortest)


def _render_other_finding(diagnosis: Diagnosis, finding: Finding, number: int, width: int) -> Iterator[Text]:
    cost = Text(
        f"{format_seconds(cost_seconds(diagnosis, finding))} {format_percent(cost_share(diagnosis, finding)):>5}"
        if finding.seconds
        else "warning"
    )
    style = "bold bright_red" if diagnosis.severity(finding) == "severe" else "bold yellow"
    title = Text.assemble((f"{number} ", style), (to_one_line(finding.title), "bold"))
    yield from place_left_and_right(title, cost, width, hang=2)
    yield from _render_source_line(diagnosis, finding, width, indent=2)
    if finding.cures:
        yield from _render_cure(diagnosis, finding.best_cure, width)


def _render_source_line(diagnosis: Diagnosis, finding: Finding, width: int, *, indent: int) -> Iterator[Text]:
    """Yield the source line, shortened to one line of the terminal."""
    if finding.line is None:
        return
    location = fit_width_left(to_one_line(format_location(finding.line, diagnosis.view.capture.script)), width // 2)
    text = fit_width(to_one_line(finding.line.text), width - indent - len(location) - 2)
    yield Text.assemble(" " * indent, (location, "cyan"), f"  {text}" if text else "")


def _render_missing_data(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    notes = describe_missing_data(diagnosis)
    if not notes:
        return
    yield Text()
    yield Text("Not measured", style="bold")
    yield from _wrap_paragraphs(notes[:MAX_NOTES], width, indent=2, style="yellow")
    if len(notes) > MAX_NOTES:
        yield Text(f"  {format_count(len(notes) - MAX_NOTES, 'more note')}: use --html FILE.", style="dim")


def _wrap_paragraphs(
    texts: Iterable[str], width: int, *, indent: int = 0, hang: int = 2, style: str = ""
) -> Iterator[Text]:
    for text in texts:
        yield from wrap_lines(Text(to_one_line(text), style=style), width, indent=indent, hang=hang)
