"""The step detector does not take the operations that build a model for a training loop."""

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
