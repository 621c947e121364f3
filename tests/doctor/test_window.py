"""When watching ends: enough steps, whoever marks them; never because of what happens inside one."""

from forebay.doctor.capture.window import Stepping

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
    stepping = Stepping(patience_seconds=0.03)
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
