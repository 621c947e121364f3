"""Which block has which place: laws of the book that is kept of coming groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.direct.block_schedule import MOST_AHEAD, Coming

GROUPS = st.lists(st.sets(st.integers(0, 20), max_size=6), max_size=30)
MOST_BLOCKS = 6


def coming_of(groups, places):
    return Coming(iter([(name, sorted(blocks)) for name, blocks in enumerate(groups)]), places)


def walk(groups, places, choose):
    """Admit and release until all groups are done; which were admitted, and what was held in the end.

    In every step no place is given twice, the first group in turn is admitted, and what is admitted is held.
    """
    coming, waiting, done, held = coming_of(groups, places), list(range(len(groups))), [], {}
    while waiting:
        for block in coming.admit():
            assert coming.place(block) not in held.values()
            held[block] = coming.place(block)
        admitted = [name for name in waiting if coming.blocks(name) is not None]
        assert waiting[0] in admitted
        name = choose(admitted)
        assert set(coming.blocks(name)) == groups[name] <= set(held)
        for block in coming.release(name):
            del held[block]
        waiting.remove(name)
        done.append(name)
    return done, held


@given(GROUPS, st.integers(MOST_BLOCKS, 12))
def test_groups_that_are_released_in_turn_are_all_admitted(groups, places):
    done, held = walk(groups, places, lambda admitted: admitted[0])
    assert done == list(range(len(groups)))
    assert held == {}


@given(GROUPS, st.integers(MOST_BLOCKS, 12), st.randoms())
def test_groups_that_are_released_in_any_order_are_all_admitted(groups, places, random):
    done, held = walk(groups, places, random.choice)
    assert sorted(done) == list(range(len(groups)))
    assert held == {}


def test_a_block_of_several_groups_is_placed_once():
    coming = coming_of([{1, 2}, {2, 3}], 3)
    assert coming.admit() == [1, 2, 3]
    assert coming.release(0) == [1]
    assert coming.release(1) == [2, 3]


def test_a_group_waits_until_there_is_room_for_the_whole_of_it():
    coming = coming_of([{1, 2}, {3, 4}], 3)
    assert coming.admit() == [1, 2, 3]
    assert coming.blocks(1) is None
    coming.release(0)
    assert coming.admit() == [4]
    assert coming.blocks(1) == [3, 4]


def test_it_looks_no_further_than_it_must():
    coming = coming_of([{0}] * 1000, 1)
    coming.admit()
    assert [coming.blocks(MOST_AHEAD - 1), coming.blocks(MOST_AHEAD)] == [[0], None]


def test_a_group_that_can_never_be_admitted_is_refused_rather_than_waited_for():
    with pytest.raises(ValueError, match="needs 3 blocks and there are 2 places"):
        coming_of([{1, 2, 3}], 2).admit()
