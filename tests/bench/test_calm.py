"""Whether others want the cores that the bench measures on."""

from dataclasses import replace
from itertools import accumulate, chain, repeat

import pytest
from tests.bench.test_bench_table import draw

from forebay.bench.calm import taken_share
from forebay.bench.saving import from_json, to_json

LOOK, GAP = 1e-6, 5e-3  # seconds


def clock_of(*lengths):
    """A clock that is this much later at every look."""
    return accumulate(chain(lengths, repeat(LOOK)), initial=1.0).__next__


def test_nothing_is_taken_where_every_look_is_short():
    assert taken_share(0.02, clock_of()) == 0.0


def test_what_is_taken_is_the_share_of_the_gaps():
    assert taken_share(0.02, clock_of(LOOK, GAP, LOOK, GAP)) == pytest.approx(0.5, abs=1e-3)


def test_a_gap_at_the_end_counts_whole():
    assert taken_share(0.02, clock_of(1.0)) == 1.0


@pytest.mark.parametrize(("taken", "said"), [(None, False), (0.004, False), (0.25, True)])
def test_a_busy_machine_is_told_of_below_the_table(fixed_results, taken, said):
    results = replace(fixed_results, cases=(replace(fixed_results.cases[0], taken_share=taken),))
    text = " ".join(draw(results, 80, targets=False).split())
    assert ("busy with something else: between rounds, 25% of a core's time was taken away." in text) == said


def test_it_is_kept_with_the_results(fixed_results):
    results = replace(fixed_results, cases=(replace(fixed_results.cases[0], taken_share=0.25),))
    assert from_json(to_json(results)).cases[0].taken_share == 0.25


def test_results_of_before_have_none(fixed_results):
    data = to_json(fixed_results)
    del data["cases"][0]["taken_share"]
    assert from_json(data).cases[0].taken_share is None
