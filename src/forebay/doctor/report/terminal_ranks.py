"""The terminal report of several ranks: a table with one row per rank, and remarks."""

from collections.abc import Iterator

from rich.text import Text

from forebay.doctor.diagnosis.compare_ranks import RankComparison, RankSummary
from forebay.doctor.model.formatting import format_count, format_seconds, to_one_line
from forebay.doctor.report.terminal import MIN_WIDTH, WIDTH
from forebay.doctor.report.terminal_layout import fit_width, join_lines, wrap_lines

__all__ = ["render_ranks"]

# Limits of what the terminal shows. The JSON document lists all ranks and remarks.
MAX_RANKS = 16
MAX_REMARKS = 6


def render_ranks(ranks: RankComparison, *, width: int = WIDTH) -> Text:
    """Render the table and the remarks. `terminal.render` renders the slowest rank's report."""
    return join_lines(_render_lines(ranks, max(MIN_WIDTH, min(WIDTH, width))))


def _render_lines(ranks: RankComparison, width: int) -> Iterator[Text]:
    yield Text(f"{format_count(len(ranks.ranks), 'rank')}. Rank {ranks.slowest.number} is the slowest.", style="bold")
    yield Text("  rank       step      input  collective  main finding", style="dim")
    for rank in ranks.ranks[:MAX_RANKS]:
        yield _render_row(rank, width)
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


def _render_row(rank: RankSummary, width: int) -> Text:
    """Return the row of one rank. A dash marks a value that was not measured."""
    collective = "-" if rank.collective_seconds is None else format_seconds(rank.collective_seconds)
    step = format_seconds(rank.step_seconds) if rank.step_seconds else "-"
    numbers = f"  {rank.number:>4}  {step:>9}  {format_seconds(rank.input_seconds):>9}  {collective:>10}  "
    main = rank.diagnosis.main
    return Text(numbers + fit_width(main.rule if main else "none", width - len(numbers)))
