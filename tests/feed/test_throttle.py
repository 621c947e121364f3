from forebay.feed.throttle import FIRST_REST, TRIAL_STEPS, WORTHWHILE_SECONDS, Consumer, Pace


def steps(pace, count, *, quiet, beside):
    """A consumer whose steps take so long, quiet or worked beside; how many were worked beside."""
    worked = 0
    for _ in range(count):
        worked += pace.beside
        pace.step(beside if pace.beside else quiet)
    return worked


def test_nothing_is_worked_beside_before_it_was_tried():
    assert not Pace().beside


def test_steps_that_are_not_slowed_are_worked_beside():
    pace = Pace()
    assert steps(pace, 1000, quiet=0.01, beside=0.0101) > 900


def test_steps_that_are_slowed_are_left_in_peace():
    pace = Pace()
    assert steps(pace, 1000, quiet=0.0003, beside=0.018) <= TRIAL_STEPS * 8


def test_a_consumer_that_changes_is_found_out():
    pace = Pace()
    steps(pace, 2 * TRIAL_STEPS, quiet=0.0003, beside=0.018)
    assert not pace.beside
    steps(pace, FIRST_REST * 2 + 2 * TRIAL_STEPS, quiet=0.01, beside=0.01)
    assert pace.beside


def test_a_consumer_that_is_back_at_once_is_waited_for():
    pace = Pace()
    steps(pace, 500, quiet=WORTHWHILE_SECONDS / 2, beside=WORTHWHILE_SECONDS / 2)
    assert not pace._ahead


def test_a_consumer_that_waits_lets_the_collector_go_on():
    consumer = Consumer()
    consumer.leave(1)
    assert not consumer._go.is_set()
    consumer.wait()
    assert consumer._go.is_set()


def test_closing_lets_the_collector_go_on():
    consumer = Consumer()
    consumer.leave(1)
    consumer.release()
    assert consumer._go.is_set()
