"""Where a loop's turns begin: at a line that comes once in each, whatever happens inside of one."""

from forebay.doctor.capture.hooks.op_counter import Turns


def turns_of(*lines):
    turns = Turns()
    for line in lines:
        turns.met(line)
    return turns


def test_a_line_that_comes_once_a_turn_begins_it():
    turns = turns_of(*[1, 2, 3, 3, 4] * 5)
    assert [turns.begins_at(line) for line in (1, 2, 3, 4)] == [True, False, False, False]


def test_lines_before_the_loop_begin_nothing():
    turns = turns_of(8, 9, *[1, 2] * 5)
    assert (turns.begins_at(8), turns.begins_at(1)) == (False, True)


def test_an_inner_loop_does_not_begin_the_outer_ones_turns():
    turns = turns_of(*[1, *[2, 3] * 10] * 5)
    assert (turns.begins_at(2), turns.begins_at(1)) == (False, True)


def test_any_line_will_do_where_there_is_only_one():
    assert turns_of(*[5] * 100).begins_at(5)


def test_a_new_line_does_not_change_what_was_found():
    turns = turns_of(*[1, 2] * 5)
    assert turns.begins_at(1)
    turns.met(7)
    assert not turns.begins_at(7)
