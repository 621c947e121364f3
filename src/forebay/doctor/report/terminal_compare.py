"""The terminal reports that compare two runs, or the ranks of one run."""

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from forebay.doctor.diagnosis.compare_ranks import RankComparison, RankSummary
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import format_count, format_seconds, to_one_line
from forebay.doctor.report.compare import Comparison, Document, TimeChange
from forebay.doctor.report.terminal_layout import (
    fit_width,
    fit_width_left,
    join_lines,
    place_left_and_right,
    wrap_lines,
)

__all__ = ["render_comparison", "render_ranks"]

WIDTH = 80  # columns
MIN_WIDTH = 60  # columns
MAX_FINDINGS = 6  # findings shown in each group: resolved, new, remaining
MAX_DIFFERENCES = 4  # environment differences shown
MIN_CHANGE = 0.005  # share of the longer step; the report omits parts and changes that take less
# Limits of what the report of ranks shows. The JSON document lists all ranks and remarks.
MAX_RANKS = 16
MAX_REMARKS = 6


def render_comparison(comparison: Comparison, names: tuple[str, str], *, width: int = WIDTH) -> Text:
    """Render the comparison as one text. `names` are the files of the two runs."""
    width = max(MIN_WIDTH, min(WIDTH, width))
    return join_lines(
        [*_render_head(names, width), *_render_step(comparison, width), *_render_findings(comparison, width)]
    )


def _render_head(names: tuple[str, str], width: int) -> Iterator[Text]:
    name_width = (width - len("forebay doctor  ") - len(" -> ")) // 2
    before, after = (fit_width_left(to_one_line(name), name_width) for name in names)
    yield Text.assemble(("forebay doctor", "bold"), f"  {before} -> {after}")
    yield Text("─" * width, style="dim")


def _render_step(comparison: Comparison, width: int) -> Iterator[Text]:
    yield from wrap_lines(_render_headline(comparison), width)
    scripts = [Path(document.get("script", "")).name for document in (comparison.before, comparison.after)]
    if scripts[0] != scripts[1]:
        yield from wrap_lines(
            Text(to_one_line(f"The two runs are of different scripts: {scripts[0]} and {scripts[1]}."), style="yellow"),
            width,
        )
    if comparison.differences:
        differences = "; ".join(comparison.differences[:MAX_DIFFERENCES])
        omitted = len(comparison.differences) - MAX_DIFFERENCES
        sentence = f"The environment differs too: {differences}{f'; and {omitted} more' if omitted > 0 else ''}."
        yield from wrap_lines(Text(to_one_line(sentence), style="yellow"), width)
    if any(comparison.other_programs):
        yield from wrap_lines(Text(_describe_other_programs(*comparison.other_programs), style="yellow"), width)
    yield Text()
    # The three columns of times take 34 characters: 11 + 11 + 12.
    yield Text(f"{'  part of a step':<{width - 34}}{'before':>11}{'after':>11}{'change':>12}", style="dim")
    smallest = MIN_CHANGE * max(comparison.before["step_seconds"], comparison.after["step_seconds"])
    for change in comparison.parts:
        if max(change.before or 0.0, change.after or 0.0) > smallest:
            yield _render_row(change, smallest, width)
    yield _render_row(comparison.step, smallest, width, style="bold")
    if comparison.mean_step is not None:
        yield _render_row(comparison.mean_step, smallest, width, style="bold")


def _describe_other_programs(before: str, after: str) -> str:
    """State the cores that other programs used in one or both runs."""
    runs = " and ".join(f"{used} {when}" for used, when in ((before, "before"), (after, "after")) if used)
    return f"Other programs used {runs}: the difference may be theirs."


def _render_headline(comparison: Comparison) -> Text:
    before, after = comparison.before["step_seconds"], comparison.after["step_seconds"]
    sentence = f"A step takes {format_seconds(after)} instead of {format_seconds(before)}"
    if not comparison.is_significant:
        return Text(f"{sentence}. Steps within one run vary as much.", style="bold")
    if after <= before:
        return Text(f"{sentence}: {comparison.speedup:.2f} x as fast.", style="bold green")
    return Text(f"{sentence}: {1 / comparison.speedup:.2f} x as long.", style="bold bright_red")


def _render_row(change: TimeChange, smallest: float, width: int, *, style: str = "") -> Text:
    """Return one row of the table, without a change of at most `smallest` seconds."""
    times = "".join(f"{'-' if value is None else format_seconds(value):>11}" for value in (change.before, change.after))
    row = Text(f"  {fit_width(to_one_line(change.name), width - 37):<{width - 36}}{times}", style=style)
    if abs(change.seconds) <= smallest:
        return row
    sign, color = ("-", "green") if change.seconds < 0 else ("+", "bright_red")
    return row.append(f"{sign + format_seconds(abs(change.seconds)):>12}", color)


def _render_findings(comparison: Comparison, width: int) -> Iterator[Text]:
    resolved, added = ([(finding, "") for finding in group] for group in (comparison.resolved, comparison.new))
    yield from _render_group(("resolved finding", "No finding is only in the first run."), resolved, "green", width)
    yield from _render_group(("new finding", "No finding is only in the second run."), added, "bright_red", width)
    remaining = [(new, f"{format_seconds(old['seconds_per_step'])} -> ") for old, new in comparison.remaining]
    yield from _render_group(("remaining finding", "No finding is in both runs."), remaining, "yellow", width)


def _render_group(
    titles: tuple[str, str], findings: list[tuple[Document, str]], style: str, width: int
) -> Iterator[Text]:
    """Yield the lines of a group of findings.

    `titles` are the noun of the group, and the sentence for an empty group. `findings` are pairs of a finding and the
    text that precedes its cost.
    """
    noun, empty_sentence = titles
    yield Text()
    if not findings:
        yield Text(empty_sentence, style="dim")
        return
    yield Text(format_count(len(findings), noun), style=f"bold {style}")
    for finding, earlier_cost in findings[:MAX_FINDINGS]:
        cost = Text(f"{earlier_cost}{format_seconds(finding['seconds_per_step'])}")
        yield from place_left_and_right(Text(to_one_line(finding["title"])), cost, width, indent=2, hang=2)
        yield from _render_source_line(finding, width)
    if len(findings) > MAX_FINDINGS:
        yield Text(f"  and {len(findings) - MAX_FINDINGS} more", style="dim")


def _render_source_line(finding: Document, width: int) -> Iterator[Text]:
    if finding["file"] is None:
        return
    location = fit_width_left(to_one_line(str(Line(Path(finding["file"]).name, finding["line"], ""))), width // 2)
    text = fit_width(to_one_line(finding["text"] or ""), width - 4 - len(location) - 2)
    yield Text.assemble("    ", (location, "cyan"), f"  {text}" if text else "")


def render_ranks(ranks: RankComparison, *, width: int = WIDTH) -> Text:
    """Return the table of ranks and the remarks; `terminal.render` renders the slowest rank."""
    return join_lines(_render_rank_lines(ranks, max(MIN_WIDTH, min(WIDTH, width))))


def _render_rank_lines(ranks: RankComparison, width: int) -> Iterator[Text]:
    yield Text(f"{format_count(len(ranks.ranks), 'rank')}. Rank {ranks.slowest.number} is the slowest.", style="bold")
    yield Text("  rank       step      input  collective  main finding", style="dim")
    for rank in ranks.ranks[:MAX_RANKS]:
        yield _render_rank(rank, width)
    if len(ranks.ranks) > MAX_RANKS:
        yield Text(
            f"  {format_count(len(ranks.ranks) - MAX_RANKS, 'more rank')}. Use --json FILE to see all.", style="dim"
        )
    for remark in ranks.remarks[:MAX_REMARKS]:
        yield from wrap_lines(Text(to_one_line(f"{remark}."), style="yellow"), width, indent=2, hang=2)
    if len(ranks.remarks) > MAX_REMARKS:
        yield Text(
            f"  {format_count(len(ranks.remarks) - MAX_REMARKS, 'more remark')}. Use --json FILE to see all.",
            style="dim",
        )
    if not ranks.remarks:
        yield Text("  No rank differs from the others.", style="green")
    yield Text()


def _render_rank(rank: RankSummary, width: int) -> Text:
    """Return the row of one rank. A dash marks a value that was not measured."""
    collective = "-" if rank.collective_seconds is None else format_seconds(rank.collective_seconds)
    step = format_seconds(rank.step_seconds) if rank.step_seconds else "-"
    numbers = f"  {rank.number:>4}  {step:>9}  {format_seconds(rank.input_seconds):>9}  {collective:>10}  "
    main = rank.diagnosis.main
    return Text(numbers + fit_width(main.rule if main else "none", width - len(numbers)))
