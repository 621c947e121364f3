"""All ranks take the same steps, and deliver every row once after any resume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import PipelineError
from forebay.order.schedule import ENDLESS, Cursor, Schedule
from forebay.pipeline.ranks import Rank, validate_equal_steps

rows_counts, batch_rows, rank_counts = st.integers(1, 200), st.integers(1, 9), st.integers(1, 9)


def ranks_of(rows, batch, count, *, drop_remainder=False, passes=1):
    return [Schedule(rows, batch, drop_remainder, index, count, passes) for index in range(count)]


def batches_of(schedule, cursor, group):
    """Return the global positions of every batch, and the cursor after it."""
    found = []
    for part in schedule.groups(cursor, group):
        first = part.base + schedule.shard_index
        own = [first + (part.start + row) * schedule.shard_count for row in range(part.rows)]
        cuts = range(0, part.batches * schedule.batch_rows, schedule.batch_rows)
        found += [
            (own[cut : cut + schedule.batch_rows], schedule.advance(part.cursor, number + 1))
            for number, cut in enumerate(cuts)
        ]
    return found


@given(rows=rows_counts, batch=batch_rows, count=rank_counts, position=st.integers(0, 200), group=st.integers(1, 5))
def test_all_ranks_take_the_same_steps_or_are_refused(rows, batch, count, position, group):
    ranks, cursor = ranks_of(rows, batch, count), Cursor(position=min(position, rows))
    steps = {len(batches_of(rank, cursor, group)) for rank in ranks}
    assert (len(steps) == 1) == (ranks[0].starved_shards(cursor.position) == 0)


@given(rows=rows_counts, batch=batch_rows, count=rank_counts, position=st.integers(0, 200))
def test_ranks_that_drop_the_remainder_always_take_the_same_steps(rows, batch, count, position):
    ranks, cursor = ranks_of(rows, batch, count, drop_remainder=True), Cursor(position=min(position, rows))
    assert {rank.starved_shards(cursor.position) for rank in ranks} == {0}
    assert len({len(batches_of(rank, cursor, 3)) for rank in ranks}) == 1


def steps_of(pipeline, count):
    return [len(pipeline.shard(index, count).feed("numpy")) for index in range(count)]


TEXTS = fb.from_ragged(np.ones(125, "int32"), np.arange(0, 126, 5))
UNEVEN = {
    "rows": (fb.from_arrays(np.arange(25)).batch(1), 3, [9, 8, 8], "2 shards take"),
    "token batches": (TEXTS.batch(tokens=20, pad=0), 2, [4, 3], "1 shard takes"),
    "packed rows": (TEXTS.pack(7).batch(1), 3, [9, 8, 8], "2 shards take"),
}


@pytest.mark.parametrize(("pipeline", "count", "steps", "note"), UNEVEN.values(), ids=UNEVEN)
def test_shards_by_number_may_take_one_step_less_and_explain_says_so(pipeline, count, steps, note):
    assert steps_of(pipeline, count) == steps
    with pipeline.shard(0, count).feed("numpy") as feed:
        assert f"{note} one step less" in " ".join(feed.explain().split())
    with pipeline.take(2).shard(0, count).feed("numpy") as feed:
        assert "one step less" not in feed.explain()


@pytest.mark.parametrize(
    ("pipeline", "count"),
    [
        (fb.from_arrays(np.arange(25)).batch(1, drop_remainder=True), 3),
        (TEXTS.batch(tokens=20, pad=0, drop_remainder=True), 4),
        (TEXTS.pack(7).batch(1, drop_remainder=True), 3),
        (fb.from_arrays(np.arange(25)).batch(2), 3),
    ],
)
def test_shards_by_number_take_equal_steps_if_no_shard_lacks_rows(pipeline, count):
    assert len(set(steps_of(pipeline, count))) == 1
    with pipeline.shard(0, count).feed("numpy") as feed:
        assert "one step less" not in feed.explain()


@given(batch=batch_rows, count=rank_counts)
def test_an_endless_epoch_has_no_last_step(batch, count):
    assert Schedule(ENDLESS, batch, shard_count=count).starved_shards(0) == 0


@given(rows=rows_counts, batch=st.integers(2, 9), count=rank_counts, position=st.integers(0, 200))
def test_only_fewer_rows_than_ranks_are_refused_unless_batches_have_one_row(rows, batch, count, position):
    position = min(position, rows)
    refused = ranks_of(rows, batch, count)[0].starved_shards(position) > 0
    assert refused == (0 < rows - position < count)


@given(rows=rows_counts, batch=batch_rows, count=rank_counts, group=st.integers(1, 5))
def test_no_batch_is_empty_or_too_long_and_only_the_last_two_are_short(rows, batch, count, group):
    sizes = [
        [len(own) for own, _ in batches_of(rank, Cursor(), group)]
        for rank in ranks_of(rows, batch, count, drop_remainder=False)
    ]
    assert all(1 <= length <= batch for own in sizes for length in own)
    assert all(length == batch for own in sizes for length in own[:-2])
    assert all(length >= batch - 1 for own in sizes for length in own[:-1])


@given(
    rows=st.integers(1, 300),
    parts=st.lists(st.tuples(batch_rows, rank_counts, st.integers(0, 6)), min_size=1, max_size=4),
    last=st.tuples(batch_rows, rank_counts),
    group=st.integers(1, 5),
)
def test_the_state_of_any_rank_resumes_any_number_of_ranks(rows, parts, last, group):
    cursor, seen = Cursor(), []
    for batch, count, steps in parts:
        received = [batches_of(rank, cursor, group)[:steps] for rank in ranks_of(rows, batch, count)]
        seen += [position for own in received for positions, _ in own for position in positions]
        longest = max(received, key=len)
        after = {own[-1][1] for own in received if len(own) == len(longest) > 0}
        assert len(after) <= 1  # the state is the same on every rank
        cursor = after.pop() if after else cursor
    rest = [batches_of(rank, cursor, group) for rank in ranks_of(rows, *last)]
    seen += [position for own in rest for positions, _ in own for position in positions]
    assert sorted(seen) == list(range(rows))


@given(rows=st.integers(1, 60), batch=batch_rows, count=rank_counts, group=st.integers(1, 5))
def test_the_steps_of_three_passes_are_counted_and_differ_only_if_ranks_lack_rows(rows, batch, count, group):
    ranks = ranks_of(rows, batch, count, passes=3)
    known = {rank.batches for rank in ranks}
    assert {len(batches_of(rank, Cursor(), group)) for rank in ranks} == known
    assert (len(known) == 1) == (ranks[0].starved_shards(0) == 0)


def test_ranks_reserve_a_row_if_the_last_step_has_too_few_rows():
    sizes = [[len(own) for own, _ in batches_of(rank, Cursor(), 9)] for rank in ranks_of(22, 5, 4)]
    assert sizes == [[4, 2], [4, 2], [4, 1], [4, 1]]


def test_a_feed_returns_the_reserved_rows():
    pipelines = [fb.from_arrays(np.arange(41)).shard(index, 4).batch(5).feed("numpy") for index in range(4)]
    batches = [[batch.tolist() for batch in feed] for feed in pipelines]
    assert [[len(batch) for batch in own] for own in batches] == [[5, 4, 2], [5, 4, 1], [5, 4, 1], [5, 4, 1]]
    assert sorted(row for own in batches for batch in own for row in batch) == list(range(41))


@pytest.mark.parametrize(("rows", "batch", "position"), [(10, 1, 0), (3, 5, 0), (103, 5, 101)])
def test_steps_that_not_all_ranks_can_take_are_refused_with_advice(rows, batch, position):
    with pytest.raises(PipelineError, match=r"ranks would have no row.*drop_remainder=True"):
        validate_equal_steps(Rank(0, 4, "torch.distributed"), Schedule(rows, batch, shard_count=4), position)
