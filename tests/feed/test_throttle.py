"""The rules for when a reading thread may run during the steps of the consumer."""

from forebay.feed.throttle import FIRST_PAUSE_STEPS, MIN_STEP_SECONDS, TRIAL_STEPS, ConsumerThrottle, OverlapPolicy


def steps(policy, count, *, quiet, overlapped):
    """Record steps that take `quiet` seconds alone and `overlapped` seconds while a thread reads.

    Return the number of steps during which reading was allowed.
    """
    overlaps = 0
    for _ in range(count):
        overlaps += policy.is_overlap_allowed
        policy.record_step(overlapped if policy.is_overlap_allowed else quiet)
    return overlaps


def test_reading_does_not_overlap_before_the_first_trial():
    assert not OverlapPolicy().is_overlap_allowed


def test_reading_overlaps_with_steps_that_it_does_not_slow():
    policy = OverlapPolicy()
    assert steps(policy, 1000, quiet=0.01, overlapped=0.0101) > 900


def test_reading_does_not_overlap_with_steps_that_it_slows():
    policy = OverlapPolicy()
    assert steps(policy, 1000, quiet=0.0003, overlapped=0.018) <= TRIAL_STEPS * 8


def test_a_later_trial_notices_that_the_consumer_changed():
    policy = OverlapPolicy()
    steps(policy, 2 * TRIAL_STEPS, quiet=0.0003, overlapped=0.018)
    assert not policy.is_overlap_allowed
    steps(policy, FIRST_PAUSE_STEPS * 2 + 2 * TRIAL_STEPS, quiet=0.01, overlapped=0.01)
    assert policy.is_overlap_allowed


def test_reading_waits_for_a_consumer_with_very_short_steps():
    policy = OverlapPolicy()
    steps(policy, 500, quiet=MIN_STEP_SECONDS / 2, overlapped=MIN_STEP_SECONDS / 2)
    assert not policy._is_allowed


def test_a_waiting_consumer_lets_the_reading_thread_continue():
    throttle = ConsumerThrottle()
    throttle.on_take(1)
    assert not throttle._may_read.is_set()
    throttle.on_wait()
    assert throttle._may_read.is_set()


def test_reset_lets_the_reading_thread_continue():
    throttle = ConsumerThrottle()
    throttle.on_take(1)
    throttle.reset()
    assert throttle._may_read.is_set()
