"""Laws of every rule on any capture: it never raises and never promises more than the step time."""

import ast
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.any_captures import captures, events
from tests.doctor.captures import LOOP, MS, capture_of
from tests.support.parsing import parse

from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.diagnosis.diagnose import EQUAL_SHARE, RULES, diagnose
from forebay.doctor.diagnosis.savings import WARM_CACHES
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.rules.registry import view_for_rules


def findings(view):
    return [finding for rule in RULES for finding in _examine(view, rule)]


def _examine(view, rule):
    return import_module(f"forebay.doctor.rules.{rule}").examine(view)


@given(captures)
def test_no_rule_raises_or_promises_more_than_the_step_time(capture):
    view = view_for_rules(capture)
    found = findings(view)
    step = view.step_seconds
    assert all(finding.cures and 0 <= finding.seconds <= step for finding in found)
    assert all(0 <= cure.low <= cure.high <= step for finding in found for cure in finding.cures)


@given(captures)
def test_no_cure_saves_more_than_its_finding_costs_unless_the_finding_says_why(capture):
    for finding in (finding for finding in diagnose(capture).findings if finding.seconds):
        highest = max(cure.high for cure in finding.cures)
        assert highest <= finding.seconds * (1 + 1e-8) or {WARM_CACHES, finding.why_more} & {*finding.evidence}


@given(captures)
def test_waits_cost_at_least_the_part_of_the_step_that_waits_for_input(capture):
    """Both leave out long steps. A wait of a few steps may cost more, because it makes these steps long."""
    view = view_for_rules(capture)
    waits = [event for event in capture.events if event.kind == "input"]
    busy = {"compile", "build"} & {event.kind for event in capture.events}
    if view.steps is not None and view.device is None and not busy:
        assert cost_of(view, waits) >= view.host_parts["waiting for input"] * (1 - 1e-9)


@given(captures)
def test_every_finding_has_readable_text(capture):
    found = findings(view_for_rules(capture))
    assert all(finding.rule in RULES and finding.title and finding.evidence for finding in found)
    assert all(cure.title and cure.code and cure.basis for finding in found for cure in finding.cures)


@given(captures)
def test_no_event_belongs_to_two_rules(capture):
    view = view_for_rules(capture)
    events_of_rules = [id(event) for rule in RULES for site in view.sites_for(rule) for event in site.events]
    assert len(events_of_rules) == len(set(events_of_rules))


@given(captures)
def test_findings_are_sorted_by_gain_and_no_rule_fails(capture):
    diagnosis = diagnose(capture)
    # A gain counts half if the cure changes the training. Nearly equal gains may come in any order.
    gains = [finding.gain / (1 + finding.changes_training) for finding in diagnosis.findings]
    tolerance = EQUAL_SHARE * view_for_rules(capture).step_seconds
    assert all(later <= earlier + tolerance for earlier, later in pairwise(gains))
    assert diagnosis.failures == ()


@given(captures)
def test_a_diagnosis_is_deterministic(capture):
    assert diagnose(capture).findings == diagnose(capture).findings


@given(capture=captures, some=st.lists(events, max_size=20), more=st.lists(events, max_size=20))
def test_more_events_cost_no_less_and_at_most_the_step(capture, some, more):
    view = view_for_rules(capture)
    assert 0 <= cost_of(view, some) <= view.step_seconds
    assert cost_of(view, [*some, *some]) == cost_of(view, some)
    assert cost_of(view, [*some, *more]) >= cost_of(view, some) * (1 - 1e-9)


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_a_loop_of_few_steps_causes_no_failure(number):
    step_ends = [LedgerEvent("step", "optimizer.step", -1, LOOP, at * MS, at * MS) for at in range(number)]
    assert diagnose(capture_of(step_ends, lines=())).failures == ()


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_computes_the_gain_of_a_cure(rule):
    tree = parse(Path(import_module(f"forebay.doctor.rules.{rule}").__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Cure"]
    assert not [keyword.arg for call in calls for keyword in call.keywords if keyword.arg in ("low", "high")]
    assert all(len(call.args) <= 4 for call in calls)  # title, code, basis, changes


@given(captures)
def test_a_rule_leaves_gains_to_the_simulation(capture):
    assert all(cure.gain == 0 for finding in findings(view_for_rules(capture)) for cure in finding.cures)
