"""The order of the cures of a finding."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.rules.finding import EQUAL_GAIN_SHARE, Cure, Finding

gains = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6)


def finding_of(pairs):
    cures = (Cure(f"cure {number}", "", "", low=min(pair), high=max(pair)) for number, pair in enumerate(pairs))
    return Finding("host", "title", None, 1.0, tuple(cures))


def titles(finding):
    return [cure.title for cure in finding.cures_by_gain]


def test_cures_of_nearly_equal_gains_stay_in_the_order_of_the_rule():
    assert titles(finding_of([(0.40, 0.50), (0.42, 0.52), (0.8, 0.9)])) == ["cure 2", "cure 0", "cure 1"]
    assert titles(finding_of([(0.42, 0.52), (0.40, 0.50), (0.2, 0.9)])) == ["cure 0", "cure 1", "cure 2"]


@given(gains)
def test_the_best_cure_gains_nearly_as_much_as_any_other_of_its_kind(pairs):
    finding = finding_of(pairs)
    equals = [
        cure for cure in finding.cures if finding._certainly_saves(cure) == finding._certainly_saves(finding.best_cure)
    ]
    assert finding.gain >= (1 - EQUAL_GAIN_SHARE) * max(cure.gain for cure in equals)


@given(gains)
def test_sorting_the_cures_again_changes_nothing(pairs):
    finding = finding_of(pairs)
    again = replace(finding, cures=tuple(finding.cures_by_gain))
    assert titles(again) == titles(finding)
    assert sorted(titles(finding)) == sorted(cure.title for cure in finding.cures)
