"""When watching ends: enough steps, whoever marks them; never because of what happens inside one."""

from itertools import pairwise

from forebay.doctor.capture.ledger import NEVER
from forebay.doctor.capture.step_detector import Stepping

STEP, UPLOAD, BUILD = ("step", "optimizer.step", 3), ("upload", "tf.constant", 7), ("build", "Dataset", 9)
MILLISECOND = 1_000_000


def walk(stepping, site, count, each=MILLISECOND, start=0):
    """The first call that changes the phase, counted from one; None where none does."""
    for number in range(1, count + 1):
        if stepping.note(site, number, start + number * each):
            return number
    return None


def test_a_window_is_so_many_steps_after_the_warm_up():
    stepping = Stepping(warm_up=10, steps=50)
    assert walk(stepping, STEP, 100) == 60
    assert (stepping.phase, stepping.anchor) == ("tracing", STEP)
    assert (stepping.start, stepping.end) == (10 * MILLISECOND, 60 * MILLISECOND)


def test_a_window_needs_no_warm_up():
    assert walk(Stepping(warm_up=0, steps=5), STEP, 100) == 5


def test_long_steps_are_watched_for_some_seconds_only():
    stepping = Stepping(warm_up=2, steps=50, seconds=10)
    assert walk(stepping, STEP, 50, each=3_000 * MILLISECOND) == 6


def test_a_line_that_comes_again_is_a_step_where_nobody_calls_one():
    stepping = Stepping(patience_seconds=0.03, glance_seconds=0.0)
    assert walk(stepping, UPLOAD, 100) == 60
    assert stepping.anchor == UPLOAD


def test_a_line_must_come_again_for_a_while():
    stepping = Stepping(patience_seconds=3.0)
    assert walk(stepping, UPLOAD, 100) is None


def test_what_happens_inside_a_step_is_no_step():
    stepping = Stepping(patience_seconds=0.0)
    walk(stepping, STEP, 3)
    assert walk(stepping, UPLOAD, 1000) is None


def test_building_something_marks_no_loop():
    assert walk(Stepping(patience_seconds=0.0), BUILD, 1000) is None


def test_some_steps_are_recorded_on_the_device():
    stepping = Stepping(warm_up=1, steps=2, traced_steps=4)
    assert walk(stepping, STEP, 3) == 3
    assert walk(stepping, UPLOAD, 50) is None
    assert walk(stepping, STEP, 10, start=10 * MILLISECOND) == 5
    assert (stepping.phase, len(stepping.traced)) == ("timing", 5)


def test_some_steps_are_timed_after_the_window():
    stepping = Stepping(warm_up=1, steps=2, untraced_steps=3)
    assert walk(stepping, STEP, 3) == 3
    stepping.skip_tracing()
    assert walk(stepping, UPLOAD, 50) is None
    assert walk(stepping, STEP, 10, start=10 * MILLISECOND) == 4
    assert stepping.phase == "over"
    assert len(stepping.marks) == 4


def test_a_script_that_ends_early_ends_the_window():
    stepping = Stepping()
    walk(stepping, STEP, 5)
    stepping.finish(99)
    assert (stepping.phase, stepping.end, stepping.anchor) == ("over", 99, None)


def test_a_line_is_left_alone_until_it_has_come_for_long_enough():
    stepping = Stepping(patience_seconds=3.0, glance_seconds=0.25)
    walk(stepping, UPLOAD, 260)
    assert stepping.rest_until == 3_000 * MILLISECOND + MILLISECOND
    assert stepping.phase == "watching"


def test_it_is_watched_again_when_it_has():
    stepping = Stepping(patience_seconds=3.0, glance_seconds=0.25)
    walk(stepping, UPLOAD, 260)
    assert walk(stepping, UPLOAD, 300, start=3_001 * MILLISECOND) == 260
    assert (stepping.start, stepping.end) == (3_011 * MILLISECOND, 3_261 * MILLISECOND)


def test_something_surer_ends_the_rest():
    stepping = Stepping(patience_seconds=3.0, glance_seconds=0.25)
    walk(stepping, UPLOAD, 260)
    assert walk(stepping, STEP, 100, start=300 * MILLISECOND) == 63
    assert (stepping.anchor, stepping.rest_until) == (STEP, 0)


def test_a_script_that_ends_while_all_rest_was_watched_before():
    stepping = Stepping(patience_seconds=3.0, glance_seconds=0.25)
    walk(stepping, UPLOAD, 260)
    stepping.finish(2_000 * MILLISECOND)
    assert (stepping.anchor, stepping.start, stepping.end) == (UPLOAD, 10 * MILLISECOND, 260 * MILLISECOND)


def test_what_belonged_to_a_loop_before_is_waited_for_no_longer():
    stepping = Stepping(patience_seconds=0.0, glance_seconds=0.0)
    walk(stepping, STEP, 3)
    assert walk(stepping, UPLOAD, 100, start=3_000 * MILLISECOND) == 60


def test_operations_alone_mark_a_loop_in_the_end():
    stepping = Stepping(patience_seconds=0.0, glance_seconds=0.0)
    assert walk(stepping, ("ops", "jax operations", 4), 100) == 60


def test_operations_mark_none_where_anything_else_has_come():
    stepping = Stepping(patience_seconds=0.0)
    walk(stepping, UPLOAD, 1)
    assert walk(stepping, ("ops", "jax operations", 4), 1000) is None


def test_what_comes_often_is_told_of_seldom():
    stepping = Stepping(warm_up=10, steps=50)
    walk(stepping, UPLOAD, 11)
    count, _ = stepping.again(UPLOAD, 11 * MILLISECOND)
    assert count == 60


def test_what_marks_no_loop_is_never_told_of_again():
    stepping = Stepping()
    stepping.note(BUILD, 1, 0)
    assert stepping.again(BUILD, 0) == NEVER


def test_very_short_steps_are_timed_many_at_a_time():
    stepping = Stepping(warm_up=1, steps=2, untraced_steps=3)
    walk(stepping, STEP, 3)
    stepping.skip_tracing()
    assert walk(stepping, STEP, 4, each=10_000, start=10 * MILLISECOND) is None
    assert (stepping.block, len(stepping.marks)) == (16, 1)
    assert walk(stepping, STEP, 1000, each=160_000, start=10 * MILLISECOND + 40_000) == 313
    assert {after - before for before, after in pairwise(stepping.marks)} == {10_000}


def test_short_steps_that_must_all_be_heard_of_are_timed_for_as_long():
    stepping = Stepping(warm_up=1, steps=2, untraced_steps=3)
    walk(stepping, STEP, 3)
    stepping.skip_tracing()
    walk(stepping, STEP, 4, each=10_000, start=10 * MILLISECOND)
    stepping.block = 1
    assert walk(stepping, STEP, 10_000, each=10_000, start=10 * MILLISECOND + 40_000) == 5_000
    assert len(stepping.marks) == 5_001
