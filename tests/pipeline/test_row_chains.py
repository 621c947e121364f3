"""Chains of methods that choose rows deliver the rows of a NumPy model."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.row_chains import WORDS, chains
from tests.support.profiles import FEW_EXAMPLES
from tests.support.received import batches_of, resumed_rows, rows_of

import forebay as fb
from forebay.core.spec import parse_nbytes
from forebay.errors import BudgetError, PipelineError, TransformError
from forebay.order.length_buckets import can_bucket
from forebay.testing import SimulatedEngine

BATCHES = st.integers(1, 50)


def epoch_of(pipeline, epoch, batch=7, **options):
    with pipeline.batch(batch).feed("numpy", **options) as feed:
        feed.set_epoch(epoch)
        return rows_of(feed)


@given(chain=chains(), epoch=st.integers(0, 5), batch=st.integers(1, 50))
def test_every_epoch_has_the_rows_of_the_model(chain, epoch, batch):
    chain.assert_rows(epoch_of(chain.pipeline, epoch, batch))


@pytest.mark.parametrize("word", WORDS)
@FEW_EXAMPLES
@given(data=st.data(), batches=st.tuples(BATCHES, BATCHES), count=st.integers(1, 3))
def test_each_method_alone_has_the_rows_of_the_model_on_a_device_and_after_a_resume(word, data, batches, count):
    chain = data.draw(chains(word))
    whole = epoch_of(chain.pipeline, 1, batches[0])
    chain.assert_rows(whole)
    assert epoch_of(chain.pipeline, 1, batches[1], device=SimulatedEngine()) == whole
    with chain.pipeline.shard(0, count).batch(1).feed("numpy") as feed:
        feed.set_epoch(1)
        steps = min(data.draw(st.integers(0, 9)), len(whole) // count - 1)
        seen = [int(next(feed)[0]) for _ in range(steps)]
        state = feed.state_dict()
    assert seen == whole[: max(0, steps) * count : count]
    if seen:
        assert resumed_rows(chain.pipeline.batch(batches[1]), state) == whole[steps * count :]


@given(chain=chains(), epoch=st.integers(0, 2), batches=st.tuples(BATCHES, BATCHES))
def test_the_batch_size_does_not_change_the_rows(chain, epoch, batches):
    assert epoch_of(chain.pipeline, epoch, batches[0]) == epoch_of(chain.pipeline, epoch, batches[1])


@given(chain=chains(), budget=st.integers(1, 32), epoch=st.integers(0, 2), batch=BATCHES)
def test_every_budget_holds_or_is_refused_with_a_budget_that_holds(chain, budget, epoch, batch):
    rows, nbytes = chain.pipeline.batch(batch), budget * 1024
    try:
        feed = rows.feed("numpy", host_bytes=nbytes)
    except BudgetError as error:
        nbytes = parse_nbytes(re.search(r"Pass host_bytes='(\w+)'", str(error))[1], "host_bytes")
        feed = rows.feed("numpy", host_bytes=nbytes)
    with feed:
        feed.set_epoch(epoch)
        assert rows_of(feed) == epoch_of(chain.pipeline, epoch)
        assert feed.plan.nbytes <= nbytes


@given(chain=chains(), epoch=st.integers(0, 2), batch=BATCHES, divisor=st.integers(2, 5))
def test_a_skipped_row_is_the_nearest_good_row_of_its_batch(chain, epoch, batch, divisor):
    def fail_for_some(row):
        if row % divisor == 0:
            raise ValueError(row)
        return row

    plain, rows = chain.pipeline.batch(batch), chain.pipeline.map(fail_for_some, on_error="skip", max_errors=1.0)
    with plain.feed("numpy") as feed:
        first = nearest_good(batches_of(feed)[0], divisor)  # feed() applies the map to the first batch of epoch 0
        feed.set_epoch(epoch)
        expected = [nearest_good(found, divisor) for found in batches_of(feed)]
    if None in (first, *expected):
        with pytest.raises(TransformError, match=r"failed for all \d+ rows of a batch"):
            epoch_of(rows, epoch, batch)
        return
    assert epoch_of(rows, epoch, batch) == [row for found in expected for row in found]


def nearest_good(batch, divisor):
    """Return the batch with failed rows replaced, or None if all rows failed."""
    good = [position for position, row in enumerate(batch) if row % divisor]
    return [batch[min(good, key=lambda other: abs(other - place))] for place in range(len(batch))] if good else None


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
    lengths = data.draw(st.lists(st.integers(3, 9), min_size=chain.length, max_size=chain.length))  # rows have 3 values
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


NUMBERS = fb.from_arrays(np.arange(12))
FIELDS = fb.from_arrays({"row": np.arange(12), "group": np.arange(12) % 3})
TEXTS = fb.from_ragged(np.arange(12), [0, 3, 12]).pack(4)


@pytest.mark.parametrize("before", [lambda rows: rows.shuffle(), lambda rows: rows.sample(balance=np.arange(12))])
@pytest.mark.parametrize(
    "word",
    [
        lambda rows: rows.select([1]),
        lambda rows: rows.split(0.5, 0.5),
        lambda rows: rows.split(0.5, 0.5, by="group"),
        lambda rows: rows.filter(lambda batch: batch["row"] > 3),
        lambda rows: rows.sample(weights=np.ones(12)),
        lambda rows: rows.sample(balance="group"),
    ],
)
def test_methods_that_need_fixed_rows_are_refused_after_drawn_rows(before, word):
    with pytest.raises(PipelineError, match="would choose different rows in each epoch"):
        word(before(FIELDS))


@pytest.mark.parametrize(
    "word",
    [
        lambda rows: rows.split(0.5, 0.5, by="group"),
        lambda rows: rows.filter(lambda batch: batch["row"] > 3),
        lambda rows: rows.sample(balance="group"),
    ],
)
def test_methods_that_read_fields_are_refused_after_a_map(word):
    with pytest.raises(PipelineError, match="reads the stored rows, but map"):
        word(FIELDS.map(same_row))


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS.select([3, 1]),
        NUMBERS.filter(lambda batch: batch % 2 == 0),
        NUMBERS.split(0.5, 0.5)[0],
        NUMBERS.split(0.5, 0.5, by=np.arange(12) % 2)[0],
        NUMBERS.repeat(2),
        NUMBERS.shuffle(),
        NUMBERS.sample(weights=np.ones(12)),
        NUMBERS.window(2),
        NUMBERS.map(abs),
        fb.interleave(NUMBERS, NUMBERS),
        TEXTS,
    ],
)
def test_windows_of_rows_that_are_not_consecutive_are_refused(rows):
    with pytest.raises(PipelineError, match="needs consecutive rows of the source"):
        rows.window(2)


@pytest.mark.parametrize("combine", [fb.concat, fb.interleave, fb.zip_rows])
def test_mapped_rows_are_not_combined(combine):
    with pytest.raises(PipelineError, match=r"has map\(.*Call map\(\) after"):
        combine(NUMBERS.map(same_row, on_error="skip"), NUMBERS)


@pytest.mark.parametrize("rows", [FIELDS, TEXTS])
def test_a_dict_is_not_zipped_with_itself(rows):
    with pytest.raises(PipelineError, match="two fields that are both named"):
        fb.zip_rows(rows, rows)


@pytest.mark.parametrize("place", ["1MB", "folder"])
def test_rows_that_depend_on_their_batch_are_not_cached(place):
    with pytest.raises(PipelineError, match="replaces a row by another row of its batch"):
        NUMBERS.map(same_row, on_error="skip").cache(place)


@pytest.mark.parametrize("rows", [TEXTS, fb.from_arrays(sp.csr_array(np.eye(3)))])
def test_packed_and_sparse_rows_need_no_version_on_disk(rows, tmp_path):
    expected = [str(batch) for batch in rows.batch(2).feed("numpy")]
    with rows.cache(tmp_path).batch(2).feed("numpy") as feed:
        assert [[str(batch) for batch in feed] for _ in range(2)] == [expected, expected]


def test_packed_rows_of_python_objects_need_a_version_on_disk(tmp_path):
    rows = fb.from_source([np.arange(3), np.arange(2)]).pack(4)
    with pytest.raises(
        PipelineError, match=r"needs a hash of the functions and the data.*Pass cache\(..., version='1'\)"
    ):
        rows.cache(tmp_path)
    assert rows.cache(tmp_path, version="1")


def same_row(row):
    return row
