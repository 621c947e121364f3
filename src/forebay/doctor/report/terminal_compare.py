"""Two runs on one screen of 80 columns: how a step and its parts changed, and which findings went, came, stayed."""

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from forebay.doctor.model.formatting import counted, plain, seconds
from forebay.doctor.report.compare import Change, Comparison, Document
from forebay.doctor.report.terminal_layout import between, cut, cut_left, joined, wrapped

__all__ = ["render_comparison"]

WIDTH = 80
LEAST_WIDTH = 60
MOST_OF_A_KIND = 6  # findings that went, or came, or stayed
MOST_OTHERWISE = 4
SMALLEST_CHANGE = 0.005  # of a step


def render_comparison(comparison: Comparison, names: tuple[str, str], *, width: int = WIDTH) -> Text:
    """The screen as one text: lines that fit, without spaces at their ends."""
    width = max(LEAST_WIDTH, min(WIDTH, width))
    return joined([*_head(names, width), *_step(comparison, width), *_findings(comparison, width)])


def _head(names: tuple[str, str], width: int) -> Iterator[Text]:
    room = (width - len("forebay doctor  ") - len(" -> ")) // 2
    before, after = (cut_left(plain(name), room) for name in names)
    yield Text.assemble(("forebay doctor", "bold"), f"  {before} -> {after}")
    yield Text("─" * width, style="dim")


def _step(comparison: Comparison, width: int) -> Iterator[Text]:
    yield from wrapped(_verdict(comparison), width)
    scripts = [Path(document.get("script", "")).name for document in (comparison.before, comparison.after)]
    if scripts[0] != scripts[1]:
        yield from wrapped(
            Text(plain(f"These are two scripts: {scripts[0]}, then {scripts[1]}."), style="yellow"), width
        )
    if comparison.otherwise:
        others = "; ".join(comparison.otherwise[:MOST_OTHERWISE])
        more = len(comparison.otherwise) - MOST_OTHERWISE
        told = f"Not only the script may differ: {others}{f'; and {more} more' if more > 0 else ''}."
        yield from wrapped(Text(plain(told), style="yellow"), width)
    yield Text()
    yield Text(f"{'  what a step is made of':<{width - 34}}{'before':>11}{'after':>11}{'change':>12}", style="dim")
    smallest = SMALLEST_CHANGE * max(comparison.before["step_seconds"], comparison.after["step_seconds"])
    for change in comparison.parts:
        if max(change.before or 0.0, change.after or 0.0) > smallest:
            yield _row(change, smallest, width)
    yield _row(comparison.step, smallest, width, style="bold")


def _verdict(comparison: Comparison) -> Text:
    before, after = comparison.before["step_seconds"], comparison.after["step_seconds"]
    told = f"A step takes {seconds(after)} instead of {seconds(before)}"
    if not comparison.certain:
        return Text(f"{told}: no more than steps of one run differ among themselves.", style="bold")
    if after <= before:
        return Text(f"{told}: {comparison.times:.2f} x as fast.", style="bold green")
    return Text(f"{told}: {1 / comparison.times:.2f} x as long.", style="bold bright_red")


def _row(change: Change, smallest: float, width: int, *, style: str = "") -> Text:
    times = "".join(f"{'-' if value is None else seconds(value):>11}" for value in (change.before, change.after))
    row = Text(f"  {change.name:<{width - 36}}{times}", style=style)
    if abs(change.seconds) <= smallest:
        return row
    sign, colour = ("-", "green") if change.seconds < 0 else ("+", "bright_red")
    return row.append(f"{sign + seconds(abs(change.seconds)):>12}", colour)


def _findings(comparison: Comparison, width: int) -> Iterator[Text]:
    yield from _group("went", [(finding, "") for finding in comparison.went], "green", width)
    yield from _group("came", [(finding, "") for finding in comparison.came], "bright_red", width)
    stayed = [(new, f"{seconds(old['seconds_per_step'])} -> ") for old, new in comparison.stayed]
    yield from _group("stayed", stayed, "yellow", width)


def _group(word: str, findings: list[tuple[Document, str]], style: str, width: int) -> Iterator[Text]:
    yield Text()
    if not findings:
        yield Text(f"No finding {word}", style="dim")
        return
    yield Text(f"{counted(len(findings), 'finding')} {word}", style=f"bold {style}")
    for finding, earlier in findings[:MOST_OF_A_KIND]:
        cost = Text(f"{earlier}{seconds(finding['seconds_per_step'])}")
        yield from between(Text(plain(finding["title"])), cost, width, indent=2, hang=2)
        yield from _where(finding, width)
    if len(findings) > MOST_OF_A_KIND:
        yield Text(f"  and {len(findings) - MOST_OF_A_KIND} more", style="dim")


def _where(finding: Document, width: int) -> Iterator[Text]:
    if finding["file"] is None:
        return
    place = cut_left(plain(f"{Path(finding['file']).name}:{finding['line']}"), width // 2)
    text = cut(plain(finding["text"] or ""), width - 4 - len(place) - 2)
    yield Text.assemble("    ", (place, "cyan"), f"  {text}" if text else "")
