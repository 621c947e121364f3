"""The expected diagnoses of the scripts in `faults`, for GPU runs and recorded captures."""

import pytest
from tests.gpu.fault_lines import LINES, OTHER_FIRST_RULES, WARNINGS

__all__ = ["expect_fault", "expect_healthy", "format_findings"]


def expect_fault(framework, rule, diagnosis):
    """Expect a finding of this rule.

    Rules in WARNINGS only warn. A finding of another rule must name the faulty line. It must also be the first one,
    unless `OTHER_FIRST_RULES` allows another rule there.
    """
    found = [finding for finding in diagnosis.findings if finding.rule == rule]
    _expect(found, diagnosis)
    if rule not in WARNINGS:
        first = diagnosis.main.rule if diagnosis.main else None
        _expect(first in {rule} | OTHER_FIRST_RULES.get((framework, rule), set()), diagnosis)
        _expect(_text_of(found[0]).startswith(LINES[framework][rule]), diagnosis)
    assert diagnosis.failures == ()


def expect_healthy(rule, diagnosis):
    """Expect a complete run without a finding of this rule."""
    _expect(diagnosis.view.capture.ended == "done", diagnosis)
    _expect(rule not in {finding.rule for finding in diagnosis.findings}, diagnosis)
    assert diagnosis.failures == ()


def format_findings(diagnosis):
    """Return all findings as lines, for the message of a failed test."""
    case = diagnosis.view
    capture, view = case.capture, case.device
    parts = ", ".join(f"{part} {1e3 * spent:.2f}" for part, spent in case.step_parts.items() if spent > 1e-5)
    busy = f"{view.busy_share:.0%} busy, {view.kernels_per_step:.0f} kernels" if view else "not recorded"
    return "\n".join(
        [
            f"  ended: {capture.ended}; steps: {case.steps and (len(case.steps), case.steps.anchor[:2])}",
            f"  {1e3 * case.step_seconds:.2f} ms a step: {parts}; the device: {busy}",
            *(
                f"  {found.rule} {diagnosis.share(found):.0%}, {found.title} | {_text_of(found)}"
                for found in diagnosis.findings
            ),
            *(f"  note: {note}" for note in (*capture.notes, *diagnosis.failures)),
        ]
    )


def _expect(is_expected, diagnosis):
    """Fail unless `is_expected`, and show all findings: a GPU run is expensive to repeat."""
    if not is_expected:
        pytest.fail(format_findings(diagnosis), pytrace=False)


def _text_of(finding):
    return finding.line.text if finding.line else ""
