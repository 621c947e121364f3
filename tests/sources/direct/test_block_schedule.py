"""Properties of the assignment of blocks to buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.direct.block_schedule import MAX_LOOKAHEAD_GROUPS, BlockSchedule

GROUPS = st.lists(st.sets(st.integers(0, 20), max_size=6), max_size=30)
MAX_GROUP_BLOCKS = 6


def schedule_of(groups, buffers):
    return BlockSchedule(iter([(name, sorted(blocks)) for name, blocks in enumerate(groups)]), buffers)


def run_schedule(groups, buffers, choose):
    """Admit and release all groups. Return them in the order of their release, and the blocks that are still held.

    In every step, check that no buffer is assigned twice and that the first waiting group is admitted.
    """
    schedule, waiting, done, held = schedule_of(groups, buffers), list(range(len(groups))), [], {}
    while waiting:
        for block in schedule.admit():
            assert schedule.buffer_of(block) not in held.values()
            held[block] = schedule.buffer_of(block)
        admitted = [name for name in waiting if schedule.blocks_of(name) is not None]
        assert waiting[0] in admitted
        name = choose(admitted)
        assert set(schedule.blocks_of(name)) == groups[name] <= set(held)
        for block in schedule.release(name):
            del held[block]
        waiting.remove(name)
        done.append(name)
    return done, held


@given(GROUPS, st.integers(MAX_GROUP_BLOCKS, 12))
def test_groups_that_are_released_in_order_are_all_admitted(groups, buffers):
    done, held = run_schedule(groups, buffers, lambda admitted: admitted[0])
    assert done == list(range(len(groups)))
    assert held == {}


@given(GROUPS, st.integers(MAX_GROUP_BLOCKS, 12), st.randoms())
def test_groups_that_are_released_in_any_order_are_all_admitted(groups, buffers, random):
    done, held = run_schedule(groups, buffers, random.choice)
    assert sorted(done) == list(range(len(groups)))
    assert held == {}


def test_a_block_of_several_groups_gets_one_buffer():
    schedule = schedule_of([{1, 2}, {2, 3}], 3)
    assert schedule.admit() == [1, 2, 3]
    assert schedule.release(0) == [1]
    assert schedule.release(1) == [2, 3]


def test_a_group_waits_until_all_its_blocks_have_a_buffer():
    schedule = schedule_of([{1, 2}, {3, 4}], 3)
    assert schedule.admit() == [1, 2, 3]
    assert schedule.blocks_of(1) is None
    schedule.release(0)
    assert schedule.admit() == [4]
    assert schedule.blocks_of(1) == [3, 4]


def test_the_look_ahead_is_bounded():
    schedule = schedule_of([{0}] * 1000, 1)
    schedule.admit()
    assert [schedule.blocks_of(MAX_LOOKAHEAD_GROUPS - 1), schedule.blocks_of(MAX_LOOKAHEAD_GROUPS)] == [[0], None]


def test_a_group_that_can_never_be_admitted_raises_an_error():
    with pytest.raises(ValueError, match="needs 3 blocks, but there are only 2 buffers"):
        schedule_of([{1, 2, 3}], 2).admit()
