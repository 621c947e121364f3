"""Maps on rows draw the same random numbers on every path of a feed."""

import json
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.feed.mapped_functions import draw, jitter

import forebay as fb
from forebay.testing import SimulatedEngine

SHARDS = st.integers(1, 4)
BATCHES = st.integers(1, 9)


def noise(batch, rng):
    return batch + rng.random(len(batch))


def pairs_of(feed, state=None):
    """Return (row, random number) of each row of the rest of an epoch."""
    if state is not None:
        feed.load_state_dict(json.loads(json.dumps(state)))
    return [pair for batch in feed for pair in zip(batch["row"].tolist(), batch["drawn"].tolist(), strict=True)]


@dataclass(frozen=True)
class RandomRows:
    """A pipeline of rows, without batches and shards."""

    name: str
    pipeline: fb.Pipeline

    def __repr__(self):
        return self.name


def generate():
    return iter(np.arange(37))


RANDOM_ROWS = [
    RandomRows("in order", fb.from_arrays(np.arange(37))),
    RandomRows("shuffled", fb.from_arrays(np.arange(37)).shuffle(seed=3)),
    RandomRows("in blocks", fb.from_arrays(np.arange(37)).shuffle(seed=3, block=5, mix=2)),
    RandomRows("repeated", fb.from_arrays(np.arange(13)).shuffle(seed=3).repeat(3)),
    RandomRows("repeated, then taken", fb.from_arrays(np.arange(13)).repeat().take(37)),
    RandomRows("stream", fb.from_generator(generate)),
    RandomRows("mixed stream", fb.from_generator(generate).shuffle(seed=2, window=80)),
    RandomRows("repeated stream", fb.from_generator(lambda: iter(np.arange(12))).repeat(3)),
]


def whole_epochs(pipeline, epochs=2):
    with pipeline.map(draw, seed=5).map(jitter).batch(4).feed("numpy") as feed:
        return [pairs_of(feed) for _ in range(epochs)]


@cache
def expected_epochs(name):
    (pipeline,) = (rows.pipeline for rows in RANDOM_ROWS if rows.name == name)
    return whole_epochs(pipeline)


@given(rows=st.sampled_from(RANDOM_ROWS), batch=BATCHES, shards=SHARDS, budget=st.sampled_from(["4MiB", "1GB"]))
def test_batch_size_shards_and_budget_do_not_change_the_numbers(rows, batch, shards, budget):
    mapped = rows.pipeline.map(draw, seed=5).map(jitter)
    feeds = [mapped.shard(i, shards).batch(batch).feed("numpy", host_bytes=budget) for i in range(shards)]
    for expected in expected_epochs(rows.name):
        assert sorted(pair for feed in feeds for pair in pairs_of(feed)) == sorted(expected)
    for feed in feeds:
        feed.close()


@given(
    rows=st.sampled_from(RANDOM_ROWS),
    batches=st.tuples(BATCHES, BATCHES),
    shards=st.tuples(SHARDS, SHARDS),
    steps=st.integers(0, 3),
    epoch=st.integers(0, 1),
)
def test_a_resume_on_other_shards_and_batches_does_not_change_the_numbers(rows, batches, shards, steps, epoch):
    assume(steps * batches[0] * shards[0] < 36)  # the state must be inside an epoch
    mapped, seen = rows.pipeline.map(draw, seed=5).map(jitter), []
    for shard in range(shards[0]):
        with mapped.shard(shard, shards[0]).batch(batches[0]).feed("numpy") as feed:
            feed.set_epoch(epoch)
            seen += pairs_of(islice(feed, steps))
            state = feed.state_dict()
    for shard in range(shards[1]):
        with mapped.shard(shard, shards[1]).batch(batches[1]).feed("numpy") as feed:
            seen += pairs_of(feed, state)
    assert sorted(seen) == sorted(expected_epochs(rows.name)[epoch])


@given(seed=st.integers(0, 100), rows=st.integers(1, 60))
def test_another_order_does_not_change_the_numbers_of_a_row(seed, rows):
    in_order = fb.from_arrays(np.arange(rows))
    with (
        in_order.map(draw, seed=1).batch(7).feed("numpy") as expected,
        in_order.shuffle(seed=seed).map(draw, seed=1).batch(5).feed("numpy") as shuffled,
    ):
        assert dict(pairs_of(shuffled)) == dict(pairs_of(expected))


@pytest.mark.parametrize("rows", RANDOM_ROWS, ids=repr)
def test_rows_that_occur_several_times_have_different_numbers(rows):
    drawn = [number for epoch in expected_epochs(rows.name) for _, number in epoch]
    assert len(set(drawn)) == len(drawn)


def test_each_pass_of_a_repeat_after_batch_has_its_own_numbers():
    with fb.from_arrays(np.arange(10)).map(draw).batch(4).repeat(2).feed("numpy") as feed:
        pairs = pairs_of(feed)
    assert len({number for _, number in pairs}) == 20
    with fb.from_arrays(np.arange(10)).map(draw).batch(3).repeat(2).feed("numpy") as other:
        assert sorted(pairs_of(other)) == sorted(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [RANDOM_ROWS[1], RANDOM_ROWS[3], RANDOM_ROWS[6]], ids=repr)
def test_worker_processes_draw_the_same_numbers(rows):
    pipelines = [
        rows.pipeline.map(draw, seed=5, where="process").map(jitter).shard(0, 2).batch(3),
        rows.pipeline.map(draw, seed=5).map(jitter, where="process").shard(1, 2).batch(5),
    ]
    pairs = []
    for pipeline in pipelines:
        with pipeline.feed("numpy") as feed:
            pairs += pairs_of(feed)
    assert sorted(pairs) == sorted(expected_epochs(rows.name)[0])


@pytest.mark.slow
def test_worker_processes_with_several_batches_per_task_draw_the_same_numbers():
    pipeline = fb.from_arrays(np.arange(2003)).shuffle(seed=1)
    with (
        pipeline.map(draw, where="process").batch(4).feed("numpy") as in_process,
        pipeline.map(draw).batch(64).feed("numpy") as in_thread,
    ):
        assert in_process.plan.group_batches > 1
        assert pairs_of(in_process) == pairs_of(in_thread)


@pytest.mark.slow
def test_a_padded_batch_has_the_same_numbers():
    pipeline = fb.from_arrays(np.arange(37)).shuffle(seed=3).map(draw, seed=5).map(jitter)
    for mapped in (pipeline, pipeline.map(lambda row: row, where="process")):
        with mapped.batch(5, pad=0).feed("numpy") as feed:
            assert pairs_of(feed) == expected_epochs("shuffled")[0]


def test_a_device_receives_the_same_numbers():
    pipeline = fb.from_arrays(np.arange(37)).shuffle(seed=3).map(draw, seed=5).map(jitter).batch(6)
    with pipeline.feed("numpy", device=SimulatedEngine(bytes_per_second=1e9, latency_seconds=1e-6)) as feed:
        assert pairs_of(feed) == expected_epochs("shuffled")[0]


def test_explain_says_to_what_the_random_numbers_belong():
    with fb.from_arrays(np.arange(8)).map(draw).batch(4).feed("numpy") as feed:
        assert "random numbers belong to the row" in feed.explain()
    with fb.from_arrays(np.arange(8)).batch(4).map(noise).feed("numpy") as feed:
        assert "belong to the batch, and change with the batch size and the shards" in feed.explain()
    with fb.from_arrays(np.arange(8)).batch(4).feed("numpy") as feed:
        assert "random" not in feed.explain()


# States of Forebay 0.1, which drew the numbers of a row from its batch


def old_state(feed):
    state = feed.state_dict()
    assert state.pop("random") == 2
    return state


def test_a_state_of_0_1_resumes_with_a_warning_if_a_map_draws_numbers_of_rows():
    pipeline = fb.from_arrays(np.arange(37)).shuffle(seed=3).map(draw, seed=5).map(jitter).batch(4)
    with pipeline.feed("numpy") as feed:
        next(feed)
        with pytest.warns(UserWarning, match=r"map\(draw, rows\) draws different .* finish the run with it"):
            feed.load_state_dict(old_state(feed))
        assert pairs_of(feed) == expected_epochs("shuffled")[0][4:]
        with warnings.catch_warnings(action="error"):
            feed.load_state_dict(feed.state_dict())


@pytest.mark.parametrize(
    "pipeline",
    [
        fb.from_arrays(np.arange(37)).batch(4).map(noise),
        fb.from_arrays(np.arange(37)).map(lambda row: row).batch(4),
        fb.from_arrays(np.arange(37)).batch(4),
    ],
)
def test_a_state_of_0_1_resumes_without_a_warning_if_no_number_changes(pipeline):
    with pipeline.feed("numpy") as feed, warnings.catch_warnings(action="error"):
        feed.load_state_dict(old_state(feed))
        assert len(list(feed)) == 10
