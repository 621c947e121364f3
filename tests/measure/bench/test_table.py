"""The printed tables."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from forebay.measure.bench.results import BenchResults
from forebay.measure.bench.table import format_amount, render

SNAPSHOTS = Path(__file__).parent / "snapshots"


def draw(results: BenchResults, width: int, *, targets: bool) -> str:
    out = StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    for part in render(results, targets=targets):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "width", "targets"), [("table_80", 80, False), ("table_80_targets", 80, True), ("table_120", 120, False)]
)
def test_the_table_equals_its_snapshot(fixed_results, name, width, targets):
    assert draw(fixed_results, width, targets=targets) == (SNAPSHOTS / f"{name}.txt").read_text()


def test_the_table_of_gpu_results_equals_its_snapshot(fixed_gpu_results):
    assert draw(fixed_gpu_results, 80, targets=True) == (SNAPSHOTS / "table_80_gpu.txt").read_text()


def test_date_and_commit_are_shown_if_they_are_known(fixed_results):
    known = replace(fixed_results, date="2026-11-18T15:36:47Z", commit="9942fc14")
    assert "\nmeasured at 2026-11-18T15:36:47Z, commit 9942fc14\n" in draw(known, 80, targets=False)
    assert "\ncommit 9942fc14\n" in draw(replace(known, date=None), 80, targets=False)


@pytest.mark.parametrize(("share", "is_shown"), [(None, False), (0.004, False), (0.25, True)])
def test_a_high_cpu_steal_share_is_shown_below_the_table(fixed_results, share, is_shown):
    results = replace(fixed_results, cases=(replace(fixed_results.cases[0], cpu_steal_share=share),))
    text = " ".join(draw(results, 80, targets=False).split())
    assert (
        "Other processes took 25% of a core between the rounds. Without them, this machine is faster." in text
    ) == is_shown


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(9.44e6, "rows/s", "9.44 M"), (5234, "rows/s", "5.23 k"), (12.0, "rows/s", "12.0"), (0.7, "us", "0.70"),
     (6504.2, "ms", "6,504")],
)  # fmt: skip
def test_amounts_are_short(value, unit, text):
    assert format_amount(value, unit) == text
