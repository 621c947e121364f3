"""The step detector ends profiling after enough steps, and ignores events inside a step."""

from itertools import pairwise

from forebay.doctor.capture.ledger import NEVER
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
