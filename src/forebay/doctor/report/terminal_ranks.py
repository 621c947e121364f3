"""Several ranks on a screen: a line each, what sets one apart, and then the verdict on the slowest."""

from collections.abc import Iterator

from rich.text import Text

from forebay.doctor.diagnosis.compare_ranks import Rank, Ranks
from forebay.doctor.model.formatting import counted, plain, seconds
from forebay.doctor.report.terminal import LEAST_WIDTH, WIDTH
from forebay.doctor.report.terminal_layout import cut, joined, wrapped

__all__ = ["render_ranks"]

MOST_RANKS = 16  # rows; the document has all of them
MOST_REMARKS = 6


def render_ranks(ranks: Ranks, *, width: int = WIDTH) -> Text:
    """The table; the verdict on the slowest is drawn by `render` below it."""
    return joined(_lines(ranks, max(LEAST_WIDTH, min(WIDTH, width))))


def _lines(ranks: Ranks, width: int) -> Iterator[Text]:
    yield Text(f"{counted(len(ranks.ranks), 'rank')}; the slowest is rank {ranks.slowest.number}", style="bold")
    yield Text("  rank       step  for input    together  held back by", style="dim")
    for rank in ranks.ranks[:MOST_RANKS]:
        yield _row(rank, width)
    if len(ranks.ranks) > MOST_RANKS:
        yield Text(f"  {counted(len(ranks.ranks) - MOST_RANKS, 'more rank')}: --json FILE has all.", style="dim")
    for remark in ranks.remarks[:MOST_REMARKS]:
        yield from wrapped(Text(plain(f"{remark}."), style="yellow"), width, indent=2, hang=2)
    if len(ranks.remarks) > MOST_REMARKS:
        yield Text(f"  {counted(len(ranks.remarks) - MOST_REMARKS, 'more remark')}: --json FILE has all.", style="dim")
    if not ranks.remarks:
        yield Text("  Nothing sets one of them apart.", style="green")
    yield Text()


def _row(rank: Rank, width: int) -> Text:
    """What was not measured is a dash."""
    together = "-" if rank.collective_seconds is None else seconds(rank.collective_seconds)
    step = seconds(rank.step_seconds) if rank.step_seconds else "-"
    numbers = f"  {rank.number:>4}  {step:>9}  {seconds(rank.input_seconds):>9}  {together:>10}  "
    main = rank.verdict.main
    return Text(numbers + cut(main.rule if main else "nothing", width - len(numbers)))
