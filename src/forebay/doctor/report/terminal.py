"""One screen of 80 columns: the verdict with its line and its cures, what a step is made of, what else was found."""

from collections.abc import Iterable, Iterator
from itertools import islice

from rich.text import Text

from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.model.formatting import counted, near, percent, plain, seconds
from forebay.doctor.report import side_notes
from forebay.doctor.report.colors import tone_of_part
from forebay.doctor.report.sentences import (
    early_end,
    explained,
    foretold,
    gain,
    headline,
    made_of,
    no_loop,
    not_seen,
    outcome,
    pace,
    share,
    tried,
)
from forebay.doctor.report.terminal_layout import bar, between, code, cut, cut_left, joined, wrapped
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["ROWS", "WIDTH", "render"]

WIDTH = 80
ROWS = 40  # of a screen; what does not fit is counted, and stands in the page and the document
LEAST_WIDTH = 50
MOST_NOTES = 3
MOST_EVIDENCE = 3
MOST_CURES = 2
MOST_CODE = 8  # lines of a cure
MOST_GPUS = 2
SMALLEST_PART = 0.005

_COLOURS = {
    "input": "yellow",
    "upload": "bright_blue",
    "download": "bright_red",
    "compile": "magenta",
    "build": "magenta",
    "run": "green",
    "rest": "bright_black",
}


def render(verdict: Verdict, *, width: int = WIDTH) -> Text:
    """The screen as one text: lines that fit, without spaces at their ends."""
    return joined(_screen(verdict, max(LEAST_WIDTH, min(WIDTH, width))))


def _screen(verdict: Verdict, width: int) -> list[Text]:
    lines = [*_head(verdict, width), *_verdict(verdict, width)]
    if verdict.case.steps is not None:
        lines += [Text(), *_step(verdict, width)]
    lines += _beside(verdict, width)
    notes = list(_notes(verdict, width))
    lines += _others(verdict, width, room=ROWS - len(lines) - len(notes))
    return lines + notes


def _head(verdict: Verdict, width: int) -> Iterator[Text]:
    capture = verdict.case.capture
    ran = f"ran {seconds(capture.seconds)}"
    script = cut_left(plain(capture.script), width - len(ran) - len("forebay doctor  ") - 2)
    yield from between(Text.assemble(("forebay doctor", "bold"), "  ", script), Text(ran, style="dim"), width)
    yield Text("─" * width, style="dim")
    if early_end(verdict):
        yield from wrapped(Text(early_end(verdict), style="yellow"), width)
        yield Text()


def _verdict(verdict: Verdict, width: int) -> Iterator[Text]:
    """The main cause in full: where, what it costs, why it is believed, and each cure as code."""
    finding = verdict.main
    style = "bold yellow" if verdict.case.steps is None else "bold green" if finding is None else "bold bright_red"
    yield from wrapped(Text(f"{plain(headline(verdict))}.", style=style), width)
    if verdict.case.steps is None:
        yield from _paragraphs(no_loop(verdict), width, hang=0)
    if finding is None:
        yield from _paragraphs(tried(verdict), width)
        return
    yield from wrapped(Text(outcome(verdict)), width)
    yield from _paragraphs(tried(verdict), width)
    yield Text()
    yield from _where(verdict, finding, width, indent=2)
    cost = f"It costs {seconds(finding.seconds)} of a step, {percent(share(verdict, finding))} of it."
    yield from _paragraphs([cost, *finding.evidence[:MOST_EVIDENCE]], width, indent=2)
    for cure in finding.best_first[:MOST_CURES]:
        yield Text()
        yield from _cure(verdict, cure, width)
        yield from islice(code(cure.code, width, indent=6), MOST_CODE)
    if len(finding.cures) > MOST_CURES:
        yield Text(f"  {counted(len(finding.cures) - MOST_CURES, 'more cure')}: --html FILE has them.", style="dim")


def _cure(verdict: Verdict, cure: Cure, width: int) -> Iterator[Text]:
    title = Text.assemble(("Cure: ", "green"), plain(cure.title))
    won = gain(verdict, cure) if cure.win else ""  # a warning's cure wins nothing yet
    yield from between(title, Text(won, style="green"), width, indent=2, hang=6)


def _step(verdict: Verdict, width: int) -> Iterator[Text]:
    case = verdict.case
    yield from wrapped(Text(plain(pace(verdict))), width)
    yield from wrapped(Text(made_of(verdict), style="dim"), width)
    whole = sum(case.step_parts.values()) or 1.0
    shown = {name: value for name, value in case.step_parts.items() if value / whole >= SMALLEST_PART}
    longest = max(map(len, shown), default=0)
    for name, value in shown.items():
        columns = width - longest - 19
        yield Text.assemble(
            f"  {name:<{longest}}  ",
            (bar(value / whole, columns), _COLOURS.get(tone_of_part(name), "cyan")),
            f"{seconds(value):>9} {percent(value / whole):>5}",
        )
    yield from _paragraphs([*explained(verdict), *foretold(verdict)], width)


def _beside(verdict: Verdict, width: int) -> list[Text]:
    """What is known of memory and GPUs, a paragraph each."""
    told = {"Memory": side_notes.memory(verdict.case), "GPU": "\n".join(side_notes.gpus(verdict.case)[:MOST_GPUS])}
    lines = [
        line
        for name, sentences in told.items()
        for sentence in sentences.splitlines()
        for line in wrapped(Text.assemble((f"{name}  ", "bold"), plain(sentence)), width, hang=len(name) + 2)
    ]
    return [Text(), *lines] if lines else []


def _others(verdict: Verdict, width: int, *, room: int) -> list[Text]:
    """The other findings, as many as fit, each in a few lines."""
    lines: list[Text] = []
    others = verdict.findings if verdict.main is None else verdict.findings[1:]
    first = 1 if verdict.main is None else 2
    for number, finding in enumerate(others):
        block = [Text(), *_other(verdict, finding, number + first, width)]
        last = number + 1 == len(others)
        if len(lines) + len(block) + (0 if last else 2) > room:
            left = f"{counted(len(others) - number, 'more finding')}: --html FILE or --json FILE has all of them."
            return [*lines, Text(), *wrapped(Text(left, style="dim"), width)]
        lines += block
    return lines


def _other(verdict: Verdict, finding: Finding, number: int, width: int) -> Iterator[Text]:
    cost = Text(f"{seconds(finding.seconds)} {percent(share(verdict, finding)):>5}" if finding.seconds else "a warning")
    style = "bold bright_red" if verdict.severity(finding) == "severe" else "bold yellow"
    title = Text.assemble((f"{number} ", style), (plain(finding.title), "bold"))
    yield from between(title, cost, width, hang=2)
    yield from _where(verdict, finding, width, indent=2)
    if finding.cures:
        yield from _cure(verdict, finding.best, width)


def _where(verdict: Verdict, finding: Finding, width: int, *, indent: int) -> Iterator[Text]:
    """The line of the user's, cut to one of ours: it is there to be known again."""
    if finding.line is None:
        return
    place = cut_left(plain(near(finding.line, verdict.case.capture.script)), width // 2)
    text = cut(plain(finding.line.text), width - indent - len(place) - 2)
    yield Text.assemble(" " * indent, (place, "cyan"), f"  {text}" if text else "")


def _notes(verdict: Verdict, width: int) -> Iterator[Text]:
    notes = not_seen(verdict)
    if not notes:
        return
    yield Text()
    yield Text("Not seen", style="bold")
    yield from _paragraphs(notes[:MOST_NOTES], width, indent=2, style="yellow")
    if len(notes) > MOST_NOTES:
        yield Text(f"  and {counted(len(notes) - MOST_NOTES, 'more thing')}: --html FILE tells.", style="dim")


def _paragraphs(texts: Iterable[str], width: int, *, indent: int = 0, hang: int = 2, style: str = "") -> Iterator[Text]:
    for text in texts:
        yield from wrapped(Text(plain(text), style=style), width, indent=indent, hang=hang)
