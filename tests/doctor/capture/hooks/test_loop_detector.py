"""The loop detector finds the line at which an iteration starts."""

from forebay.doctor.capture.hooks.op_counter import LoopDetector


def detect(*lines):
    detector = LoopDetector()
    for line in lines:
        detector.add_line(line)
    return detector


def test_an_iteration_starts_at_the_first_line_that_occurs_once_in_it():
    detector = detect(*[1, 2, 3, 3, 4] * 5)
    assert [detector.starts_at(line) for line in (1, 2, 3, 4)] == [True, False, False, False]


def test_no_iteration_starts_at_lines_before_the_loop():
    detector = detect(8, 9, *[1, 2] * 5)
    assert (detector.starts_at(8), detector.starts_at(1)) == (False, True)


def test_lines_of_an_inner_loop_do_not_start_an_iteration_of_the_outer_loop():
    detector = detect(*[1, *[2, 3] * 10] * 5)
    assert (detector.starts_at(2), detector.starts_at(1)) == (False, True)


def test_each_iteration_of_a_loop_of_one_line_starts_at_this_line():
    assert detect(*[5] * 100).starts_at(5)


def test_a_line_after_the_detection_does_not_change_the_result():
    detector = detect(*[1, 2] * 5)
    assert detector.starts_at(1)
    detector.add_line(7)
    assert not detector.starts_at(7)
