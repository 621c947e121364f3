"""Schedules and cursors: every batch comes once, also after a resume on other shards."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.rows import row_numbers
from forebay.errors import StateError
from forebay.order.schedule import Cursor, Schedule
from forebay.testing.strategies import schedules

START = Cursor()


def positions(schedule, cursor=START, group=1000):
    """Return the pass number of each batch, and its positions in the order of all shards."""
    found = []
    for part in schedule.groups(cursor, group):
        first = part.base + schedule.shard_index
        own = [first + (part.start + row) * schedule.shard_count for row in range(part.rows)]
        found += [
            (part.cursor.passes, own[i : i + schedule.batch_rows]) for i in range(0, len(own), schedule.batch_rows)
        ]
    return found


@given(schedule=schedules(), group=st.integers(1, 7))
def test_the_group_size_does_not_change_the_rows(schedule, group):
    assert positions(schedule, group=group) == positions(schedule)


@given(schedule=schedules(), group=st.integers(1, 7))
def test_the_positions_of_a_group_are_those_of_its_batches(schedule, group):
    found = [row for part in schedule.groups(START, group) for row in row_numbers(schedule.positions(part))]
    assert found == [row for _, batch in positions(schedule) for row in batch]


@given(schedule=schedules())
def test_the_attribute_batches_is_the_number_of_batches_of_an_epoch(schedule):
    assert len(positions(schedule)) == schedule.batches


@given(schedule=schedules(), data=st.data())
def test_resuming_after_any_batch_gives_the_same_tail(schedule, data):
    whole = positions(schedule, group=3)
    done = data.draw(st.integers(0, len(whole)))
    cursor, left = Cursor(), done
    for part in schedule.groups(Cursor(), 3):
        step = min(left, part.batches)
        cursor, left = schedule.advance(part.cursor, step), left - step
        if left == 0:
            break
    assert positions(schedule, cursor) == whole[done:]


@given(
    rows=st.integers(1, 80),
    batch=st.integers(1, 5),
    counts=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    steps=st.integers(0, 10),
)
def test_resuming_on_another_number_of_shards_loses_and_repeats_no_row(rows, batch, counts, steps):
    before = [Schedule(rows, batch, shard_index=index, shard_count=counts[0]) for index in range(counts[0])]
    seen = [position for one in before for _, own in positions(one)[:steps] for position in own]
    cursor = before[0].advance(Cursor(), steps)
    after = [Schedule(rows, batch, shard_index=index, shard_count=counts[1]) for index in range(counts[1])]
    seen += [position for one in after for _, own in positions(one, cursor) for position in own]
    assert sorted(seen) == list(range(rows))


@given(schedule=schedules())
def test_only_the_last_group_ends_the_epoch(schedule):
    ends = [part.ends_epoch for part in schedule.groups(Cursor(), 2)]
    assert ends == [False] * (len(ends) - 1) + [True] * bool(ends)


@given(rows=st.integers(1, 100), batch=st.integers(1, 9), count=st.integers(1, 6))
def test_shards_that_drop_the_remainder_take_the_same_number_of_steps(rows, batch, count):
    steps = {Schedule(rows, batch, True, index, count).batches for index in range(count)}
    assert len(steps) == 1


def test_a_state_is_json_below_200_bytes():
    state = Cursor(epoch=3, position=10**12).state_dict("abc")
    assert Cursor.from_state(json.loads(json.dumps(state)), "abc") == Cursor(epoch=3, position=10**12)
    assert len(json.dumps(state)) < 200


@pytest.mark.parametrize("state", [None, {}, [], "x", {"version": 99, "pipeline": "abc"}])
def test_a_value_that_is_not_a_state_is_refused(state):
    with pytest.raises(StateError, match="is not a state"):
        Cursor.from_state(state, "abc")


def test_a_state_of_another_pipeline_is_refused():
    with pytest.raises(StateError, match="another pipeline"):
        Cursor.from_state(Cursor().state_dict("abc"), "def")


@pytest.mark.parametrize("damage", [{"epoch": -1}, {"position": "7"}, {"batches": 1.5}, {"passes": True}])
def test_a_damaged_state_is_refused(damage):
    with pytest.raises(StateError, match="damaged"):
        Cursor.from_state(Cursor().state_dict("abc") | damage, "abc")


@given(schedule=schedules(), data=st.data())
def test_the_rows_of_an_incomplete_step_are_those_of_all_shards(schedule, data):
    taken = data.draw(st.integers(0, (schedule.pass_batches or 1) - 1)) if schedule.pass_batches else 0
    cursor = schedule.advance(Cursor(), taken)
    shards = [replace(schedule, shard_index=index, passes=1) for index in range(schedule.shard_count)]
    full_rows = schedule.batch_rows * schedule.shard_count
    received = sum(len(rows) for shard in shards for _, rows in positions(shard, cursor))
    assert schedule.incomplete_step_rows(cursor) == received % full_rows
