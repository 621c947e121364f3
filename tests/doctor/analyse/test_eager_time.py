"""The time of steps without a compiled call: in the framework, in computation, and in other code."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import TENSORFLOW, loop, ops, sampled

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.eager_time import eager_time
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import EventKind

TAPE, LAYER = "tensorflow.python.eager.backprop.GradientTape.gradient", "keras.src.layers.layer.Layer.__call__"
PLOT = "matplotlib.pyplot.draw"


def time_of(capture):
    view = CaptureView(capture)
    return eager_time(view, [*view.sites_of(EventKind.OPS)])


def eager_loop(*lines, inside=40.0, small=80, small_ms=8.0, ms=100.0):
    """Build steps of 100 operations that take `inside` ms together.

    `small` of the operations use small tensors and take `small_ms` together.
    """
    operations = ops(100, inside, line=13, small=small, small_seconds=small_ms / 1e3, calling_seconds=0.02)
    return sampled(loop(operations, ms=ms, frameworks=TENSORFLOW), *lines)


def test_time_in_functions_of_the_framework_is_eager_time():
    time = time_of(eager_loop((13, TAPE, 60), (14, LAYER, 20), (15, PLOT, 20)))
    assert time.seconds == pytest.approx(0.08)
    assert time.other_seconds == pytest.approx(0.02)
    assert time.operations == pytest.approx(100)


def test_unknown_functions_belong_to_the_framework_only_on_lines_with_operations():
    assert time_of(eager_loop((13, "", 50), (15, "", 50))).seconds == pytest.approx(0.05)


def test_the_computing_time_is_what_exceeds_the_time_of_operations_on_small_tensors():
    time = time_of(eager_loop((13, TAPE, 100)))  # 80 small ones take 0.1 ms each, the other 20 take 32 ms together
    assert time.computing == pytest.approx(0.03)
    assert time.call_overhead == pytest.approx(0.07)


def test_the_computing_time_is_unknown_without_small_operations():
    assert time_of(eager_loop((13, TAPE, 100), small=0, small_ms=0)).computing is None


def test_with_few_samples_the_eager_time_is_unknown():
    capture = eager_loop((13, TAPE, 100))
    assert time_of(replace(capture, samples=capture.samples[:5])) is None


@given(st.floats(0, 100), st.integers(0, 100), st.floats(0, 50), st.floats(0.1, 99))
def test_parts_are_never_negative_nor_longer_than_the_step(inside, small, small_ms, framework_ms):
    capture = eager_loop((13, TAPE, framework_ms), (15, PLOT, 5), inside=inside, small=small, small_ms=small_ms)
    time = time_of(capture)
    assert 0 <= (time.computing or 0) <= time.seconds
    assert time.seconds + time.other_seconds == pytest.approx(unexplained_seconds(CaptureView(capture)))


def predicted(capture):
    """Return the best and the worst step time in seconds after the cure of rule `eager`."""
    diagnosis = diagnose(capture, ["eager"])
    (finding,) = diagnosis.findings
    return [diagnosis.view.step_seconds - gain for gain in (finding.best_cure.high, finding.best_cure.low)]


def test_a_compiled_step_keeps_the_computation_and_other_code():
    best, worst = predicted(eager_loop((13, TAPE, 90), (15, PLOT, 10)))
    assert 0.010 + 0.6 * 0.030 < best <= worst < 0.010 + 0.030 + 0.008


def test_a_compiled_step_keeps_most_of_the_time_of_long_operations():
    best, _ = predicted(eager_loop((13, TAPE, 100), inside=80, small=20, small_ms=0.4, ms=100))
    assert best > 0.6 * 0.078
