"""The step detector does not confuse operations that build a model with a training loop."""

import pytest

from forebay.doctor.capture.ledger import AT_NEXT_EVENT, NEVER
from forebay.doctor.capture.step_detector import StepDetector

OPS, COMPILE, RUN = ("ops", "jax operations", 5), ("compile", "jax.jit", 5), ("run", "jax.jit", 9)
SECOND = 1_000_000_000


def test_operations_between_compilations_mark_no_loop():
    detector = StepDetector()
    for number, seconds in enumerate((1, 2, 3, 18, 19, 20), 1):  # the compilation of a layer may take 15 s
        detector.on_site(COMPILE, number, seconds * SECOND - 1)
        assert not detector.on_site(OPS, number, seconds * SECOND)
    steps = [detector.on_site(RUN, number, 21 * SECOND + number * SECOND // 10) for number in range(1, 101)]
    assert any(steps)
    assert detector.anchor == RUN


def test_operations_mark_a_loop_after_the_last_compilation():
    detector = StepDetector()
    detector.on_site(COMPILE, 1, SECOND)
    assert any(detector.on_site(OPS, number, number * SECOND // 10) for number in range(1, 301))
    assert detector.anchor == OPS


def test_a_loop_that_compiles_in_each_step_is_found():
    """For example, the loop appends to an array of JAX."""
    detector = StepDetector()
    steps = range(SECOND // 10, 60 * SECOND, SECOND // 10)
    assert any([detector.on_site(COMPILE, n, at - 1), detector.on_site(OPS, n, at)][1] for n, at in enumerate(steps, 1))
    assert detector.anchor == OPS
    assert detector.next_report(COMPILE, 60 * SECOND) == NEVER


def test_every_compilation_is_reported():
    assert StepDetector().next_report(COMPILE, SECOND) == AT_NEXT_EVENT


UPLOAD = ("upload", "jnp.array", 4)


def upload_twice_and_run(detector, steps, start, seconds):
    """Report steps that upload images and labels on one line and then call a compiled function.

    Return whether the phase has changed.
    """
    counts = range(1, steps + 1)
    changes = []
    for number in counts:
        now = start + int(number * seconds * SECOND)
        changes += [detector.on_site(UPLOAD, 2 * number + part, now + part) for part in (1, 2)]
        changes.append(detector.on_site(RUN, number + 1, now + 3))
    return any(changes)


def compile_first_step(detector, is_reported):
    """Report the first step, which uploads twice at the start and then compiles for 12 seconds."""
    detector.on_site(UPLOAD, 1, SECOND)
    detector.on_site(UPLOAD, 2, SECOND + 1)
    detector.on_site(RUN, 1, 13 * SECOND)
    if is_reported:
        detector.on_compilation(SECOND + 2, 13 * SECOND)
        detector.on_site(COMPILE, 1, 13 * SECOND)


@pytest.mark.parametrize("is_reported", [True, False])  # hooks do not see the compilations of every library
def test_a_first_step_that_compiles_for_long_does_not_make_its_uploads_the_steps(is_reported):
    detector = StepDetector()
    compile_first_step(detector, is_reported)
    assert not upload_twice_and_run(detector, 32, 13 * SECOND, 0.02)
    assert detector.phase == "profiling"
    detector.finish(20 * SECOND)
    assert (detector.anchor, detector.start) == (None, 0)  # the window is the whole run; the analysis chooses the steps


def test_the_compiled_calls_after_a_long_compilation_mark_the_steps():
    detector = StepDetector()
    compile_first_step(detector, True)
    assert upload_twice_and_run(detector, 300, 13 * SECOND, 0.02)
    assert detector.anchor == RUN


def test_nested_compilations_are_excluded_once():
    detector = StepDetector(wait_seconds=3.0)
    detector.on_site(RUN, 1, SECOND)
    detector.on_compilation(SECOND, 5 * SECOND)
    detector.on_compilation(2 * SECOND, 4 * SECOND)
    assert not any(detector.on_site(RUN, number, 5 * SECOND + number * SECOND // 100) for number in range(2, 80))
    assert detector.paused_until == 8 * SECOND


def test_early_tracing_waits_for_a_warm_up_that_a_compilation_restarted():
    """Events before the compilation must not make the short steps after it look long."""
    millisecond = SECOND // 1000
    detector = StepDetector(can_trace=lambda: True)
    for number in (1, 2, 3):
        detector.on_site(OPS, number, number * 60 * millisecond)
    detector.on_site(COMPILE, 1, 190 * millisecond)
    for number in range(4, 23):
        assert not detector.on_site(OPS, number, (200 + number) * millisecond)
    assert detector.on_site(OPS, 23, 223 * millisecond)
    assert detector.phase == "early tracing"
