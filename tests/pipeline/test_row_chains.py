"""The laws of an order hold for every chain of methods that choose rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.row_chains import chains
from tests.support.received import resumed_rows, rows_of

import forebay as fb
from forebay.errors import PipelineError
from forebay.order.length_buckets import can_bucket
from forebay.testing import SimulatedEngine


def epoch_of(pipeline, epoch, batch=7, **options):
    with pipeline.batch(batch).feed("numpy", **options) as feed:
        feed.set_epoch(epoch)
        return rows_of(feed)


@given(chain=chains(), epoch=st.integers(0, 5), batch=st.integers(1, 50))
def test_every_epoch_has_the_rows_of_the_model(chain, epoch, batch):
    chain.assert_rows(epoch_of(chain.pipeline, epoch, batch))


@given(chain=chains(), epoch=st.integers(0, 2), count=st.integers(2, 4))
def test_the_rows_of_all_shards_in_turn_are_the_rows_of_one_shard(chain, epoch, count):
    whole = epoch_of(chain.pipeline, epoch)
    for index in range(min(count, len(whole))):
        assert epoch_of(chain.pipeline.shard(index, count), epoch, batch=1) == whole[index::count]


@given(chain=chains(), data=st.data(), counts=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_state_resumes_on_another_number_of_shards(chain, data, counts):
    whole = epoch_of(chain.pipeline, 0)
    steps = data.draw(st.integers(0, len(whole) // counts[0]))
    batches = chain.pipeline.shard(0, counts[0]).batch(1)
    with batches.feed("numpy") as feed:
        seen = [row for _, batch in zip(range(steps), feed, strict=False) for row in batch.tolist()]
        state = feed.state_dict()
    assert seen == whole[: steps * counts[0] : counts[0]]
    rest = whole[state["position"] :] if state["epoch"] == 0 else epoch_of(chain.pipeline, 1)
    for index in range(min(counts[1], len(rest), len(whole))):
        assert resumed_rows(chain.pipeline.shard(index, counts[1]).batch(1), state) == rest[index :: counts[1]]


@given(chain=chains(), epoch=st.integers(0, 2))
def test_a_device_gets_the_same_rows(chain, epoch):
    assert epoch_of(chain.pipeline, epoch, device=SimulatedEngine()) == epoch_of(chain.pipeline, epoch)


@given(chain=chains())
def test_every_chain_is_explained(chain):
    with chain.pipeline.batch(4).feed("numpy") as feed:
        assert feed.plan.decisions[0].why


@pytest.mark.slow
@given(chain=chains(), other=chains())
def test_states_of_different_rows_are_not_exchanged(chain, other):
    rows, others = ([epoch_of(one.pipeline, epoch) for epoch in range(3)] for one in (chain, other))
    assert rows == others or chain.pipeline.fingerprint != other.pipeline.fingerprint


@given(chain=chains(), data=st.data(), epoch=st.integers(0, 2))
def test_batches_of_similar_length_have_the_rows_of_the_chain(chain, data, epoch):
    """Rows that change with the epoch are refused."""
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=chain.length, max_size=chain.length))
    rows = chain.pipeline.map(lambda row: np.full(3, row))
    if not can_bucket(chain.pipeline.order):
        with pytest.raises(PipelineError, match="the same rows in every epoch"):
            rows.batch(tokens=20, pad=0, lengths=lengths)
        return
    with rows.batch(tokens=20, pad=0, lengths=lengths).feed("numpy") as feed:
        feed.set_epoch(epoch)
        found = [row for batch in feed for row in batch[:, 0].tolist()]
    assert sorted(found) == sorted(epoch_of(chain.pipeline, epoch))


@given(chain=chains(), epoch=st.integers(0, 2))
def test_ragged_batches_have_the_rows_of_the_chain(chain, epoch):
    rows = chain.pipeline.map(lambda row: np.full(row % 4, row))
    with rows.batch(5, ragged=True).feed("numpy") as feed:
        feed.set_epoch(epoch)
        found = [row for batch in feed for row in batch.tolist()]
    assert found == [[row] * (row % 4) for row in epoch_of(chain.pipeline, epoch)]


def test_two_feeds_of_a_split_read_the_same_source_at_the_same_time():
    train, test = fb.from_arrays(np.arange(100)).split(0.8, 0.2)
    with train.batch(4).feed("numpy") as first, test.batch(4).feed("numpy") as second:
        pairs = [(one.tolist(), other.tolist()) for one, other in zip(first, second, strict=False)]
        assert not {row for one, _ in pairs for row in one} & {row for _, other in pairs for row in other}
