"""The first steps of a loop are recorded on the device early, because the loop may end soon."""

import pytest
from tests.doctor.capture.test_step_detector import MILLISECOND, OPS, STEP, UPLOAD, report, walk

from forebay.doctor.capture.ledger import AT_NEXT_EVENT
from forebay.doctor.capture.step_detector import StepDetector


def with_device(**options):
    return StepDetector(warm_up=2, steps=20, early_steps=4, early_traced_steps=3, can_trace=lambda: True, **options)


def test_the_first_steps_are_recorded_on_the_device_early():
    detector = with_device()
    assert walk(detector, STEP, 100) == 6
    assert (detector.phase, detector.start, detector.end) == ("early tracing", 2 * MILLISECOND, 6 * MILLISECOND)
    assert walk(detector, STEP, 4, start=6 * MILLISECOND) == 4
    assert detector.phase == "profiling"
    assert detector.traced_step_ends == [number * MILLISECOND for number in range(7, 11)]


def test_a_loop_that_ends_soon_keeps_its_early_records():
    detector = with_device()
    report(detector, STEP, 12)
    detector.finish(13 * MILLISECOND)
    assert (detector.anchor, detector.start, detector.end) == (STEP, 2 * MILLISECOND, 6 * MILLISECOND)
    assert len(detector.traced_step_ends) == 4


def test_a_loop_that_ends_later_uses_the_steps_after_the_early_records():
    detector = with_device()
    report(detector, STEP, 25)
    detector.finish(26 * MILLISECOND)
    assert (detector.start, detector.end) == (12 * MILLISECOND, 25 * MILLISECOND)
    assert len(detector.traced_step_ends) == 4


def test_a_long_loop_is_recorded_again():
    detector = with_device()
    report(detector, STEP, 40)
    assert detector.phase == "tracing"
    assert detector.traced_step_ends[0] > detector.end


def test_a_loop_that_ends_while_its_input_is_traced_keeps_its_early_records():
    detector = with_device(can_trace_input=lambda: True)
    report(detector, STEP, 34)
    assert detector.phase == "input tracing"
    detector.finish(35 * MILLISECOND)
    assert len(detector.traced_step_ends) == 4


def test_if_early_steps_cannot_be_recorded_profiling_goes_on():
    detector = with_device()
    walk(detector, STEP, 6)
    detector.skip_tracing()
    assert walk(detector, STEP, 100) == 22
    assert (detector.phase, detector.start) == ("tracing", 2 * MILLISECOND)


@pytest.mark.parametrize("each_ms", [50, 500])
@pytest.mark.parametrize(("steps", "recorded", "profiled"), [(10, 4, 3), (20, 5, 6)])
def test_a_loop_of_few_long_steps_is_recorded_on_the_device(each_ms, steps, recorded, profiled):
    detector = StepDetector(can_trace=lambda: True)
    report(detector, STEP, steps, each=each_ms * MILLISECOND)
    detector.finish((steps + 1) * each_ms * MILLISECOND)
    assert len(detector.traced_step_ends) == recorded + 1
    assert detector.anchor == STEP
    assert detector.end - detector.start == profiled * each_ms * MILLISECOND


def test_a_loop_of_five_steps_has_profiled_steps_but_no_device_records():
    detector = StepDetector(can_trace=lambda: True)
    walk(detector, STEP, 5, each=500 * MILLISECOND)
    detector.finish(3_000 * MILLISECOND)
    assert (detector.start, detector.end) == (1_000 * MILLISECOND, 2_500 * MILLISECOND)
    assert detector.traced_step_ends == []


def test_short_steps_are_recorded_early_only_after_the_warm_up():
    assert walk(StepDetector(can_trace=lambda: True), STEP, 100, each=MILLISECOND) == 20


def test_without_a_device_profiling_continues_in_a_loop_of_few_long_steps():
    detector = StepDetector()
    assert walk(detector, STEP, 20, each=50 * MILLISECOND) is None
    detector.finish(2_000 * MILLISECOND)
    assert (detector.phase, detector.anchor) == ("done", None)


def test_early_records_of_another_site_are_dropped():
    detector = with_device(wait_seconds=100.0)
    report(detector, UPLOAD, 12)
    report(detector, STEP, 5, start=12 * MILLISECOND)
    detector.finish(20 * MILLISECOND)
    assert (detector.anchor, detector.traced_step_ends) == (None, [])


def test_a_loop_that_ends_during_its_early_records_does_not_hide_the_training():
    detector = with_device()
    assert walk(detector, OPS, 7) == 6
    assert detector.phase == "early tracing"
    report(detector, OPS, 2, start=6 * MILLISECOND)
    assert walk(detector, STEP, 9, start=1_000 * MILLISECOND) == 3
    assert (detector.phase, detector.traced_step_ends) == ("profiling", [])
    report(detector, STEP, 60, start=1_100 * MILLISECOND)
    assert (detector.phase, detector.anchor) == ("timing", STEP)


@pytest.mark.parametrize(("pause_ms", "ends"), [(10, False), (5_000, True)])
def test_another_loop_of_the_same_kind_ends_early_tracing_only_if_the_first_loop_has_ended(pause_ms, ends):
    detector = with_device()
    assert walk(detector, UPLOAD, 6) == 6
    other = ("upload", "tf.constant", 40)
    assert walk(detector, other, 9, start=(6 + pause_ms) * MILLISECOND) == (3 if ends else None)


def test_other_sites_are_reported_while_early_steps_are_recorded():
    detector = with_device()
    walk(detector, STEP, 6)
    assert detector.next_report(STEP, 6 * MILLISECOND) == AT_NEXT_EVENT
    assert detector.next_report(UPLOAD, 6 * MILLISECOND)[1] == 16 * MILLISECOND


def test_a_more_reliable_site_is_recorded_early_again():
    detector = with_device(wait_seconds=100.0)
    report(detector, UPLOAD, 12)
    report(detector, STEP, 15, start=12 * MILLISECOND)
    detector.finish(30 * MILLISECOND)
    assert detector.anchor == STEP
    assert len(detector.traced_step_ends) == 4
    assert detector.traced_step_ends[0] > 12 * MILLISECOND


def test_a_site_is_reported_when_its_early_records_are_due():
    detector = with_device()
    report(detector, STEP, 3)
    assert detector.next_report(STEP, 3 * MILLISECOND)[0] == 6
    without_device = StepDetector(warm_up=2, steps=20, early_steps=4)
    report(without_device, STEP, 7)
    assert without_device.next_report(STEP, 7 * MILLISECOND)[0] == 22
