"""`batch(tokens=)`: batches of rows of similar length, with a limit on the number of elements."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import BudgetError, PipelineError, StateError
from forebay.order.length_buckets import LengthBuckets
from forebay.pipeline.ranks import Rank
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import seeds

TOKENS = 40
LENGTHS = st.lists(st.integers(0, TOKENS), min_size=1, max_size=60)
SHUFFLES = st.sampled_from(["no", "exact", "block"])


def texts_of(lengths):
    """Return a pipeline of texts. Each value of a text is its row number plus 1, because padding is 0."""
    return fb.from_arrays(
        {
            "text": fb.Ragged.of_rows([np.full(length, row + 1) for row, length in enumerate(lengths)]),
            "row": np.arange(len(lengths)),
        }
    )


def apply_shuffle(pipeline, kind, seed):
    if kind == "no":
        return pipeline
    return pipeline.shuffle(seed=seed, block=None if kind == "exact" else 5, mix=None if kind == "exact" else 2)


def batches(pipeline, epoch=0, **options):
    """Return the row numbers of each batch, after a check of its text."""
    with pipeline.feed("numpy", **options) as feed:
        feed.set_epoch(epoch)
        return [check(batch) for batch in feed]


def check(batch):
    assert batch["text"].size <= TOKENS
    for row, text in zip(batch["row"], batch["text"], strict=True):
        assert set(text.tolist()) <= {0, row + 1}
    return batch["row"].tolist()


@given(lengths=LENGTHS, kind=SHUFFLES, seed=seeds, epoch=st.integers(0, 3))
def test_every_epoch_has_every_row_once_in_batches_that_fit(lengths, kind, seed, epoch):
    pipeline = apply_shuffle(texts_of(lengths), kind, seed).batch(tokens=TOKENS, pad=0)
    found = batches(pipeline, epoch)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    with pipeline.feed("numpy") as feed:
        assert len(found) == len(feed)
    assert found == batches(pipeline, epoch, device=SimulatedEngine())


@given(lengths=LENGTHS, kind=SHUFFLES, seed=seeds)
def test_without_the_remainder_batches_of_a_bucket_have_the_same_number_of_rows(lengths, kind, seed):
    rows = apply_shuffle(texts_of(lengths), kind, seed)
    buckets = LengthBuckets.of(np.array(lengths), TOKENS, bounds=[20, 40], drop_remainder=True)
    assume(buckets.batches > 0)
    found = batches(rows.batch(tokens=TOKENS, pad=0, buckets=[20, 40], drop_remainder=True))
    longest = [max((length for length in lengths if (length > 20) is is_long), default=1) for is_long in (False, True)]
    sizes = {TOKENS // max(1, length) for length in longest}
    assert {len(batch) for batch in found} <= sizes
    assert len({row for batch in found for row in batch}) == sum(map(len, found))


@given(lengths=LENGTHS, kind=SHUFFLES, seed=seeds, count=st.integers(1, 4))
def test_a_shard_takes_every_nth_batch(lengths, kind, seed, count):
    rows = apply_shuffle(texts_of(lengths), kind, seed)
    whole = batches(rows.batch(tokens=TOKENS, pad=0))
    for index in range(min(count, len(whole))):
        assert batches(rows.shard(index, count).batch(tokens=TOKENS, pad=0)) == whole[index::count]


@given(
    lengths=LENGTHS, kind=SHUFFLES, seed=seeds, counts=st.tuples(st.integers(1, 3), st.integers(1, 3)), data=st.data()
)
def test_a_state_resumes_on_another_number_of_shards(lengths, kind, seed, counts, data):
    rows = apply_shuffle(texts_of(lengths), kind, seed)
    whole = batches(rows.batch(tokens=TOKENS, pad=0), epoch=1)
    steps = data.draw(st.integers(0, max(0, len(whole) // counts[0] - 1)))
    if len(whole) < max(counts):
        return
    with rows.shard(0, counts[0]).batch(tokens=TOKENS, pad=0).feed("numpy") as feed:
        feed.set_epoch(1)
        epoch = iter(feed)
        assert [check(next(epoch)) for _ in range(steps)] == whole[: steps * counts[0] : counts[0]]
        state = json.loads(json.dumps(feed.state_dict()))
    assert state["position"] == steps * counts[0]
    for index in range(counts[1]):
        with rows.shard(index, counts[1]).batch(tokens=TOKENS, pad=0).feed("numpy") as feed:
            feed.load_state_dict(state)
            assert [check(batch) for batch in feed] == whole[steps * counts[0] :][index :: counts[1]]


TEN = [3, 9, 9, 1, 20, 4, 4, 40, 0, 12]  # lengths of ten texts
BASE = texts_of(TEN)


@pytest.mark.parametrize("kind", ["exact", "block"])
def test_epochs_differ_after_a_shuffle(kind):
    pipeline = apply_shuffle(texts_of([5] * 60), kind, 7).batch(tokens=TOKENS, pad=0)
    assert batches(pipeline, 0) != batches(pipeline, 1)
    assert batches(pipeline, 1) == batches(pipeline, 1)


def test_without_a_shuffle_each_batch_is_delivered_when_it_is_full():
    pipeline = texts_of([2, 20, 2, 20, 2, 2]).batch(tokens=TOKENS, pad=0, buckets=[10, 20], lengths="text")
    assert batches(pipeline) == [[1, 3], [0, 2, 4, 5]]


def test_repeat_and_take_apply_to_whole_batches():
    whole = batches(BASE.shuffle(seed=1).batch(tokens=TOKENS, pad=0))
    repeated = batches(BASE.shuffle(seed=1).batch(tokens=TOKENS, pad=0).repeat(2))
    assert repeated[: len(whole)] == whole
    assert len(repeated) == 2 * len(whole)
    assert repeated[len(whole) :] != whole
    assert batches(BASE.shuffle(seed=1).batch(tokens=TOKENS, pad=0).take(2)) == whole[:2]


def test_rows_are_chosen_and_combined_before_they_are_batched():
    pipeline = fb.concat(BASE, BASE).select(np.arange(20) % 3 == 0).shuffle(seed=2).batch(tokens=TOKENS, pad=0)
    assert sorted(row for batch in batches(pipeline) for row in batch) == sorted((np.arange(0, 20, 3) % 10).tolist())


def test_batches_may_be_ragged():
    with BASE.batch(tokens=TOKENS, ragged=True).feed("numpy") as feed:
        found = {int(row): len(text) for batch in feed for row, text in zip(batch["row"], batch["text"], strict=True)}
    assert [found[row] for row in range(10)] == TEN


def test_the_longest_ragged_field_counts_and_fields_of_constant_length_do_not():
    rows = [{"a": np.zeros(a), "b": np.zeros(b), "c": np.zeros(900)} for a, b in [(1, 9), (9, 1), (2, 2), (1, 1)]]
    with fb.from_source(rows).batch(tokens=18, pad=0, buckets=[2, 9]).feed("numpy") as feed:
        assert sorted((batch["a"].shape, batch["b"].shape) for batch in feed) == [((2, 2), (2, 2)), ((2, 9), (2, 9))]
    with fb.from_source(rows).batch(tokens=18, pad={"a": 0, "b": 1}, buckets=[2, 9], lengths="a").feed("numpy") as feed:
        assert sorted(batch["a"].shape for batch in feed) == [(1, 9), (3, 2)]


def make_text(row, rng):
    return {"text": np.full(TEN[int(row)], row + 1), "row": row, "draw": rng.integers(1 << 30)}


def test_a_map_on_rows_needs_lengths_and_its_random_numbers_depend_on_the_row():
    rows = fb.from_arrays(np.arange(10)).shuffle(seed=3).map(make_text)
    with pytest.raises(PipelineError, match="Pass lengths="):
        rows.batch(tokens=TOKENS, pad=0)
    draws = []
    for pipeline in (rows.batch(3, pad=0), rows.batch(tokens=TOKENS, pad=0, lengths=TEN)):
        with pipeline.feed("numpy") as feed:
            pairs = [pair for batch in feed for pair in zip(batch["row"].tolist(), batch["draw"].tolist(), strict=True)]
        draws.append(sorted(pairs))
    assert draws[0] == draws[1]


def test_repeated_rows_draw_different_random_numbers():
    rows = fb.from_arrays(np.zeros(1, int)).repeat(6).map(make_text).batch(tokens=6, pad=0, lengths=[3] * 6)
    with rows.feed("numpy") as feed:
        assert len({draw for batch in feed for draw in batch["draw"].tolist()}) == 6


OTHERS = {
    "tokens": lambda: BASE.shuffle(seed=0).batch(tokens=TOKENS + 4, pad=0),
    "buckets": lambda: BASE.shuffle(seed=0).batch(tokens=TOKENS, pad=0, buckets=[5, 40]),
    "lengths": lambda: BASE.shuffle(seed=0).batch(tokens=TOKENS, pad=0, lengths=[1, *TEN[1:]]),
    "remainder": lambda: BASE.shuffle(seed=0).batch(tokens=TOKENS, pad=0, drop_remainder=True),
    "seed": lambda: BASE.shuffle(seed=1).batch(tokens=TOKENS, pad=0),
    "no shuffle": lambda: BASE.batch(tokens=TOKENS, pad=0),
    "rows": lambda: BASE.shuffle(seed=0).batch(4, pad=0),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_states_of_other_pipelines_are_refused(make):
    pipeline = BASE.shuffle(seed=0).batch(tokens=TOKENS, pad=0)
    with pipeline.feed("numpy") as feed:
        state = feed.state_dict()
    with make().feed("numpy") as other, pytest.raises(StateError, match="another pipeline"):
        other.load_state_dict(state)


def test_all_ranks_take_the_same_number_of_steps():
    rows = texts_of([20] * 10).shuffle(seed=0)
    ranks = [Rank(index, 2, "a test") for index in range(2)]
    with pytest.raises(PipelineError, match="5 batches from batch 0 on cannot be divided among 2 ranks"):
        _on_rank(rows.batch(tokens=TOKENS, pad=0), ranks[0]).feed("numpy")
    steps = [batches(_on_rank(rows.batch(tokens=TOKENS, pad=0, drop_remainder=True), rank)) for rank in ranks]
    assert [len(found) for found in steps] == [2, 2]


def _on_rank(pipeline, rank):
    return replace(pipeline, rank=rank, shard_index=rank.index, shard_count=rank.count)


def test_explain_shows_buckets_and_padding():
    one_bucket = BASE.batch(tokens=TOKENS, pad=0, buckets=[TOKENS])
    with BASE.shuffle(seed=0).batch(tokens=TOKENS, pad=0).feed("numpy") as feed:
        assert "at most 40 elements" in feed.explain()
        assert "padding is at most" in feed.plan.decisions[0].why
        assert "1 bucket of rows of similar length" in one_bucket.feed("numpy").explain()
        assert "at most 40 elements" in repr(feed)
        assert feed.batch_rows is None
        assert feed.plan.input.order_nbytes == 2 * (40 + 9 * 8)  # two epochs of 10 rows and 9 batches


def test_the_repr_of_a_pipeline_counts_rows_and_not_batches():
    pipeline = texts_of([2, 2, 2, 2]).batch(tokens=TOKENS, pad=0)
    assert pipeline.order.length == 1
    assert "ragged array source, 4 rows" in repr(pipeline)


def test_slots_are_planned_for_full_batches():
    with texts_of([20] * 10).batch(tokens=TOKENS, pad=0).feed("numpy") as feed:
        planned = feed.plan.slot_nbytes
        list(feed)
        assert {slot.nbytes for slot in feed._runner._exchange.slots.values()} == {planned}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 39}, "row 7 has the length 40, more than batch"),
        ({"tokens": 40, "buckets": [10, 30]}, "row 7 has the length 40, more than the last of buckets"),
        ({"tokens": 40, "buckets": [40, 10]}, "must increase"),
        ({"tokens": 40, "buckets": []}, "pass a list of lengths"),
        ({"tokens": 40, "buckets": [0, 40]}, "at least 1"),
        ({"tokens": 40, "pad": None}, "Choose a value to pad"),
        ({"tokens": 0}, "at least 1"),
        ({"tokens": "many"}, "pass a whole number"),
        ({"tokens": 40, "rows": 3}, "pass one of the two"),
        ({"tokens": 40, "lengths": [1, 2]}, "for 10 rows"),
        ({"tokens": 40, "lengths": np.ones(10)}, "one whole number for each"),
        ({"tokens": 40, "lengths": [-1] * 10}, "Pass lengths from 0"),
        ({"tokens": 40, "lengths": np.full(10, 2**63 + 1, "uint64")}, "Pass lengths up to"),
        ({"tokens": 40, "lengths": "row"}, "single value, without a length"),
        ({"tokens": 40, "lengths": "title"}, "title"),
        ({"buckets": [1]}, r"are for batch\(tokens=...\)"),
        ({}, "pass a whole number of rows"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(PipelineError, match=message):
        BASE.batch(**({"pad": 0} | options))


@pytest.mark.parametrize(
    ("texts", "tokens", "message"),
    [
        (fb.from_ragged(np.zeros(1 << 18), [0, 1 << 17, 1 << 18]), 1 << 18, "at most 262144 elements takes 2.0 MiB"),
        (fb.from_ragged(np.zeros(1 << 18, "u1"), np.arange((1 << 18) + 1)), 64, "tables of the order take 2.1 MiB"),
    ],
)
def test_batches_and_tables_that_exceed_the_budget_are_refused(texts, tokens, message):
    pipeline = texts.shuffle(seed=0).batch(tokens=tokens, pad=0)
    with pytest.raises(BudgetError, match=message) as refused:
        pipeline.feed("numpy", host_bytes="1MiB")
    enough = re.search(r"Pass host_bytes='(\w+)'", str(refused.value))[1]
    with pipeline.feed("numpy", host_bytes=enough) as feed:
        assert len(next(feed)) > 0


def test_host_bytes_does_not_limit_the_table_of_a_fixed_order():
    pipeline = fb.from_ragged(np.zeros(1 << 20, "u1"), np.arange((1 << 20) + 1)).batch(tokens=64, pad=0)
    assert pipeline.order.buckets.table.nbytes == 4 << 20
    with pipeline.feed("numpy", host_bytes="3MiB") as feed:
        assert next(feed).shape == (64, 1)


def test_a_second_call_of_batch_is_refused_and_the_error_names_the_first():
    with pytest.raises(PipelineError, match=r"batch\(tokens=40\) was called already"):
        BASE.batch(tokens=40, pad=0).batch(4)


ROWS_THAT_CHANGE = {
    "take": lambda: BASE.shuffle(seed=0).take(3),
    "sample": lambda: BASE.sample(weights=np.ones(10)),
    "repeat": lambda: BASE.shuffle(seed=0).repeat(2),
    "interleave": lambda: fb.interleave(BASE.shuffle(seed=0), BASE),
}


@pytest.mark.parametrize("make", ROWS_THAT_CHANGE.values(), ids=ROWS_THAT_CHANGE)
def test_rows_that_change_with_the_epoch_are_refused(make):
    with pytest.raises(PipelineError, match="the same rows in every epoch"):
        make().batch(tokens=TOKENS, pad=0)


def test_dropping_all_rows_is_refused():
    with pytest.raises(PipelineError, match="would drop all of 2 rows"):
        texts_of([1, 1]).batch(tokens=TOKENS, pad=0, drop_remainder=True)
    with pytest.raises(PipelineError, match="is too small for 2 shards"):
        texts_of([1, 1]).shard(1, 2).batch(tokens=TOKENS, pad=0).feed("numpy")


def test_streams_endless_rows_and_single_values_are_refused():
    with pytest.raises(PipelineError, match="a stream is read in sequence"):
        fb.from_generator(lambda: iter([np.zeros(2)])).batch(tokens=4, pad=0)
    with pytest.raises(PipelineError, match="never ends"):
        BASE.repeat().batch(tokens=TOKENS, pad=0)
    with pytest.raises(PipelineError, match="all fields are single values"):
        fb.from_arrays(np.arange(3)).batch(tokens=4, pad=0)


@pytest.mark.slow
def test_a_map_in_a_process_receives_the_batches():
    pipeline = fb.from_arrays(np.arange(10)).map(make_row, where="process", workers=1)
    found = batches(pipeline.batch(tokens=TOKENS, pad=0, lengths=TEN))
    assert sorted(row for batch in found for row in batch) == list(range(10))


def make_row(row):
    return {"text": np.full(TEN[int(row)], row + 1), "row": row}
