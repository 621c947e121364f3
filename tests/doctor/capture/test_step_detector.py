"""The step detector ends profiling after enough steps, and ignores events inside a step."""

from itertools import pairwise

import pytest

from forebay.doctor.capture.ledger import AT_NEXT_EVENT, NEVER
from forebay.doctor.capture.step_detector import StepDetector

STEP, UPLOAD, BUILD = ("step", "optimizer.step", 3), ("upload", "tf.constant", 7), ("build", "Dataset", 9)
OPS, RUN = ("ops", "tf operations", 20), ("run", "jax.jit", 5)
MILLISECOND = 1_000_000


def walk(detector, site, count, each=MILLISECOND, start=0):
    """Report calls of a site until one changes the phase; return the number of that call, or None."""
    for number in range(1, count + 1):
        if detector.on_site(site, number, start + number * each):
            return number
    return None


def report(detector, site, count, start=0, each=MILLISECOND):
    """Report all calls of a site, even if a call changes the phase."""
    for number in range(1, count + 1):
        detector.on_site(site, number, start + number * each)


def test_the_window_starts_after_the_warm_up():
    detector = StepDetector(warm_up=10, steps=50)
    assert walk(detector, STEP, 100) == 60
    assert (detector.phase, detector.anchor) == ("tracing", STEP)
    assert (detector.start, detector.end) == (10 * MILLISECOND, 60 * MILLISECOND)


def test_a_window_needs_no_warm_up():
    assert walk(StepDetector(warm_up=0, steps=5), STEP, 100) == 5


def test_long_steps_are_profiled_for_a_limited_time():
    detector = StepDetector(warm_up=2, steps=50, seconds=10)
    assert walk(detector, STEP, 50, each=3_000 * MILLISECOND) == 6
    assert walk(StepDetector(seconds=10), STEP, 50, each=20_000 * MILLISECOND) == 6  # four steps after a warm-up of two


def test_a_recurring_site_ends_the_steps_if_no_framework_marks_them():
    detector = StepDetector(wait_seconds=0.02, sample_seconds=0.0)
    assert walk(detector, UPLOAD, 100) == 60
    assert detector.anchor == UPLOAD


def test_operations_and_copies_must_recur_for_longer_than_other_sites():
    copies = StepDetector(wait_seconds=3.0, sample_seconds=0.0)
    assert walk(copies, UPLOAD, 50, each=100 * MILLISECOND) is None
    assert walk(StepDetector(wait_seconds=3.0, sample_seconds=0.0), UPLOAD, 150, each=100 * MILLISECOND) is not None
    detector = StepDetector(wait_seconds=3.0, sample_seconds=0.0)
    assert walk(detector, OPS, 80, each=100 * MILLISECOND) is None
    assert walk(StepDetector(wait_seconds=3.0, sample_seconds=0.0), OPS, 200, each=100 * MILLISECOND) is not None


def test_operations_do_not_end_the_steps_if_a_more_reliable_site_has_warmed_up():
    detector = StepDetector(wait_seconds=0.1, sample_seconds=0.0, seconds=10**6)
    walk(detector, OPS, 70)
    assert detector.paused_until
    walk(detector, RUN, 30, start=400 * MILLISECOND)
    detector.finish(10**5 * MILLISECOND)
    assert (detector.anchor, detector.start) == (None, 0)


def test_a_site_that_recurs_for_too_short_a_time_ends_no_step():
    detector = StepDetector(wait_seconds=3.0)
    assert walk(detector, UPLOAD, 100) is None


def test_a_site_inside_a_marked_step_ends_no_step():
    detector = StepDetector(wait_seconds=0.0)
    walk(detector, STEP, 3)
    assert walk(detector, UPLOAD, 1000) is None


def test_build_events_mark_no_loop():
    assert walk(StepDetector(wait_seconds=0.0), BUILD, 1000) is None


def test_some_steps_are_recorded_on_the_device():
    detector = StepDetector(warm_up=1, steps=2, traced_steps=4)
    assert walk(detector, STEP, 3) == 3
    assert walk(detector, UPLOAD, 50) is None
    assert walk(detector, STEP, 10, start=10 * MILLISECOND) == 5
    assert (detector.phase, len(detector.traced_step_ends)) == ("timing", 5)


def test_the_input_of_some_steps_is_traced_after_the_window():
    detector = StepDetector(warm_up=1, steps=2, input_steps=3, can_trace_input=lambda: True)
    assert walk(detector, STEP, 3) == 3
    assert detector.phase == "input tracing"
    assert walk(detector, UPLOAD, 50) is None
    assert walk(detector, STEP, 10, start=10 * MILLISECOND) == 4
    assert (detector.phase, detector.end, detector.traced_step_ends) == ("tracing", 3 * MILLISECOND, [])


def timing_detector():
    """Return a detector whose window has ended, and that now times three steps."""
    detector = StepDetector(warm_up=1, steps=2, untraced_steps=3)
    assert walk(detector, STEP, 3) == 3
    detector.skip_tracing()
    return detector


def test_some_steps_are_timed_after_the_window():
    detector = timing_detector()
    assert walk(detector, UPLOAD, 50) is None
    assert walk(detector, STEP, 10, start=10 * MILLISECOND) == 4
    assert detector.phase == "done"
    assert len(detector.step_ends) == 4


def test_a_script_that_ends_early_ends_the_window():
    detector = StepDetector()
    walk(detector, STEP, 5)
    detector.finish(99)
    assert (detector.phase, detector.end, detector.anchor) == ("done", 99, None)


def paused_detector():
    """Return a detector that pauses the hooks, because an upload recurs and no framework marks steps."""
    detector = StepDetector(wait_seconds=1.5, sample_seconds=0.25)
    walk(detector, UPLOAD, 260)
    return detector


def test_hooks_pause_until_a_site_has_recurred_for_long_enough():
    detector = paused_detector()
    assert detector.paused_until == 3_000 * MILLISECOND + MILLISECOND
    assert detector.phase == "profiling"


def test_profiling_resumes_after_the_pause():
    detector = paused_detector()
    assert walk(detector, UPLOAD, 300, start=3_001 * MILLISECOND) == 260
    assert (detector.start, detector.end) == (3_011 * MILLISECOND, 3_261 * MILLISECOND)


def test_a_more_reliable_site_ends_the_pause():
    detector = paused_detector()
    assert walk(detector, STEP, 100, start=300 * MILLISECOND) == 63
    assert (detector.anchor, detector.paused_until) == (STEP, 0)


def test_a_script_that_ends_during_the_pause_keeps_the_steps_before_it():
    detector = paused_detector()
    detector.finish(2_000 * MILLISECOND)
    assert (detector.anchor, detector.start, detector.end) == (UPLOAD, 10 * MILLISECOND, 260 * MILLISECOND)


def test_a_site_of_an_earlier_loop_is_ignored_after_some_seconds():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    walk(detector, STEP, 3)
    assert walk(detector, UPLOAD, 100, start=3_000 * MILLISECOND) == 60


def test_operations_mark_a_loop_if_no_other_site_does():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    assert walk(detector, OPS, 100) == 60


def test_operations_mark_no_loop_if_another_site_exists():
    detector = StepDetector(wait_seconds=0.0)
    walk(detector, UPLOAD, 1)
    assert walk(detector, OPS, 1000) is None


def test_a_frequent_site_is_reported_rarely():
    detector = StepDetector(warm_up=10, steps=50, early_steps=10)
    walk(detector, UPLOAD, 11)
    assert detector.next_report(UPLOAD, 11 * MILLISECOND)[0] == 20
    walk(detector, UPLOAD, 20)
    assert detector.next_report(UPLOAD, 20 * MILLISECOND)[0] == 60


def test_a_site_that_marks_no_loop_is_never_reported_again():
    detector = StepDetector()
    detector.on_site(BUILD, 1, 0)
    assert detector.next_report(BUILD, 0) == NEVER


def test_very_short_steps_are_timed_in_blocks():
    detector = timing_detector()
    assert walk(detector, STEP, 4, each=10_000, start=10 * MILLISECOND) is None
    assert (detector.block_steps, len(detector.step_ends)) == (16, 1)
    assert walk(detector, STEP, 1000, each=160_000, start=10 * MILLISECOND + 40_000) == 313
    assert {after - before for before, after in pairwise(detector.step_ends)} == {10_000}


def test_short_steps_are_timed_equally_long_if_the_ledger_cannot_skip_reports():
    detector = timing_detector()
    walk(detector, STEP, 4, each=10_000, start=10 * MILLISECOND)
    detector.block_steps = 1
    assert walk(detector, STEP, 10_000, each=10_000, start=10 * MILLISECOND + 40_000) == 5_000
    assert len(detector.step_ends) == 5_001


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
def test_another_loop_of_the_same_kind_ends_the_early_records_only_after_the_first_loop(pause_ms, ends):
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


def test_operations_at_the_end_of_an_epoch_do_not_replace_marked_steps():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    walk(detector, STEP, 40, each=130 * MILLISECOND)
    end_of_epoch = 40 * 130 * MILLISECOND
    assert walk(detector, OPS, 1000, each=5 * MILLISECOND, start=end_of_epoch) is None
    assert detector.anchor is None


def test_a_loop_after_the_training_loop_does_not_replace_it():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    walk(detector, STEP, 30, each=10 * MILLISECOND)
    assert walk(detector, UPLOAD, 4000, each=10 * MILLISECOND, start=300 * MILLISECOND) is not None
    assert (detector.phase, detector.anchor) == ("timing", STEP)
    assert (detector.start, detector.end) == (100 * MILLISECOND, 300 * MILLISECOND)


def test_a_loop_after_a_training_loop_of_few_steps_replaces_it():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    walk(detector, STEP, 12, each=10 * MILLISECOND)
    assert walk(detector, UPLOAD, 4000, each=10 * MILLISECOND, start=300 * MILLISECOND) is not None
    assert (detector.phase, detector.anchor) == ("tracing", UPLOAD)


def test_if_a_script_ends_after_a_short_training_loop_its_steps_are_the_window():
    detector = StepDetector(wait_seconds=3.0, sample_seconds=0.0)
    walk(detector, UPLOAD, 100)
    assert detector.paused_until
    detector.paused_until = 0
    walk(detector, STEP, 30, each=10 * MILLISECOND, start=4000 * MILLISECOND)
    detector.finish(60_000 * MILLISECOND)
    assert detector.anchor == STEP


def test_steps_that_take_seconds_are_preferred_to_operations():
    detector = StepDetector(wait_seconds=0.0, sample_seconds=0.0)
    detector.on_site(STEP, 1, 3_000 * MILLISECOND)
    assert walk(detector, OPS, 500, each=6 * MILLISECOND, start=3_000 * MILLISECOND) is None
