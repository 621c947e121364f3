"""What holds of every rule on any capture at all: it never raises, and never promises more than a step has."""

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doctor.any_captures import captures, events
from tests.doctor.captures import LOOP, MS, capture_of

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.diagnosis.diagnose import RULES, judge
from forebay.doctor.model.events import Event
from forebay.doctor.rules.precedence import charged


def findings(case):
    return [finding for rule in RULES for finding in _examine(case, rule)]


def _examine(case, rule):
    return import_module(f"forebay.doctor.rules.{rule}").examine(case)


@given(captures)
@settings(max_examples=300, deadline=None)
def test_no_rule_raises_or_promises_more_than_a_step_has(capture):
    case = Case(capture)
    found = findings(case)
    step = case.step_seconds
    assert all(finding.cures and 0 <= finding.seconds <= step for finding in found)
    assert all(0 <= cure.low <= cure.high <= step for finding in found for cure in finding.cures)


@given(captures)
@settings(max_examples=100, deadline=None)
def test_every_finding_can_be_read(capture):
    found = findings(Case(capture))
    assert all(finding.rule in RULES and finding.title and finding.evidence for finding in found)
    assert all(cure.title and cure.code and cure.how for finding in found for cure in finding.cures)


@given(captures)
@settings(max_examples=100, deadline=None)
def test_no_event_is_charged_by_two_rules(capture):
    case = Case(capture)
    seen = [id(event) for rule in RULES for site in charged(case, rule) for event in site.events]
    assert len(seen) == len(set(seen))


@given(captures)
@settings(max_examples=100, deadline=None)
def test_findings_come_in_the_order_of_their_wins_and_no_rule_falls_silent(capture):
    verdict = judge(capture)
    wins = [finding.win for finding in verdict.findings]
    assert wins == sorted(wins, reverse=True)
    assert verdict.silent == ()


@given(captures)
@settings(max_examples=50, deadline=None)
def test_a_capture_is_judged_the_same_twice(capture):
    assert judge(capture).findings == judge(capture).findings


@given(capture=captures, some=st.lists(events, max_size=20), more=st.lists(events, max_size=20))
@settings(max_examples=100, deadline=None)
def test_more_events_cost_no_less_and_never_more_than_the_step(capture, some, more):
    case = Case(capture)
    assert 0 <= cost_of(case, some) <= case.step_seconds
    assert cost_of(case, [*some, *some]) == cost_of(case, some)
    assert cost_of(case, [*some, *more]) >= cost_of(case, some) * (1 - 1e-9)


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_a_loop_of_hardly_any_steps_is_no_trouble(number):
    marks = [Event("step", "optimizer.step", -1, LOOP, at * MS, at * MS) for at in range(number)]
    assert judge(capture_of(marks, lines=())).silent == ()
