"""Feeds of arrays: batches, epochs, state, iterators, threads, statistics and plans."""

import copy
import gc
import json
import pickle
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

import forebay as fb
from forebay.errors import BudgetError, FeedClosedError, FeedError, StateError
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import trees


def numbers(rows=1000):
    return np.arange(rows)


def received(feed):
    return [batch.tolist() for batch in feed]


def flat(batches):
    return [row for batch in batches for row in batch]


@given(data=st.data(), rows=st.integers(1, 200), batch=st.integers(1, 40), shuffled=st.booleans())
def test_batches_equal_plain_indexing(data, rows, batch, shuffled):
    tree = data.draw(trees(rows=rows))
    keyed = {"tree": tree, "row": np.arange(rows)}
    pipeline = fb.from_arrays(keyed)
    pipeline = pipeline.shuffle(seed=5) if shuffled else pipeline
    source = fb.from_arrays(keyed).source
    with pipeline.batch(batch).feed("numpy") as feed:
        seen = []
        for got in feed:
            leaves = source.structure.flatten_like(got)
            expected = [array[got["row"]] for array in source._arrays]
            assert all(np.array_equal(leaf, want) for leaf, want in zip(leaves, expected, strict=True))
            assert all(leaf.ctypes.data % 64 == 0 for leaf in leaves)
            seen += got["row"].tolist()
    assert sorted(seen) == list(range(rows))


def test_an_unshuffled_feed_keeps_the_order():
    assert flat(received(fb.from_arrays(numbers()).batch(7).feed("numpy"))) == list(range(1000))


def test_each_iteration_is_the_next_epoch():
    pipeline = fb.from_arrays(numbers()).shuffle(seed=1).batch(10)
    with pipeline.feed("numpy") as feed:
        epochs = [received(feed) for _ in range(3)]
    with pipeline.feed("numpy") as again:
        again.set_epoch(2)
        assert received(again) == epochs[2]
    assert epochs[0] != epochs[1]


def test_an_iteration_after_a_break_is_the_next_epoch():
    pipeline = fb.from_arrays(numbers()).shuffle(seed=1).batch(10)
    with pipeline.feed("numpy") as feed:
        for _ in feed:
            break
        second = received(feed)
    with pipeline.feed("numpy") as other:
        received(other)
        assert received(other) == second


@pytest.mark.parametrize("host_bytes", ["4MB", "64MB"])
@pytest.mark.parametrize("batch", [3, 64])
def test_budgets_and_grouping_never_change_the_order(batch, host_bytes):
    pipeline = fb.from_arrays(numbers()).shuffle(seed=9).batch(batch)
    expected = [
        row for start in range(0, 1000, batch) for row in pipeline.order.rows(0, np.arange(1000))[start : start + batch]
    ]
    assert flat(received(pipeline.feed("numpy", host_bytes=host_bytes))) == expected


def test_shards_are_strides_of_one_order():
    whole = flat(received(fb.from_arrays(numbers()).shuffle(seed=2).batch(8).feed("numpy")))
    for index in range(3):
        part = flat(received(fb.from_arrays(numbers()).shard(index, 3).shuffle(seed=2).batch(8).feed("numpy")))
        assert part == whole[index::3]


def test_length_counts_batches():
    assert len(fb.from_arrays(numbers()).batch(64).feed("numpy")) == 16
    assert len(fb.from_arrays(numbers()).batch(64, drop_remainder=True).feed("numpy")) == 15
    assert len(fb.from_arrays(numbers()).batch(64).repeat(2).take(20).feed("numpy")) == 20


def test_an_endless_feed_has_no_length():
    feed = fb.from_arrays(numbers()).repeat().batch(64).feed("numpy")
    with pytest.raises(TypeError, match="no length"):
        len(feed)
    assert sum(1 for _ in zip(range(50), feed, strict=False)) == 50


def test_batches_span_two_passes_if_repeat_comes_before_batch():
    batches = received(fb.from_arrays(numbers(5)).repeat(2).batch(4).feed("numpy"))
    assert batches == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]


def test_batches_end_with_a_pass_if_repeat_comes_after_batch():
    batches = received(fb.from_arrays(numbers(5)).batch(4).repeat(2).feed("numpy"))
    assert batches == [[0, 1, 2, 3], [4], [0, 1, 2, 3], [4]]


def test_take_counts_rows_before_batch_and_batches_after():
    assert flat(received(fb.from_arrays(numbers()).take(10).batch(4).feed("numpy"))) == list(range(10))
    assert flat(received(fb.from_arrays(numbers()).batch(4).take(2).feed("numpy"))) == list(range(8))


def test_tqdm_over_a_feed_knows_its_length():
    bar = tqdm(fb.from_arrays(numbers()).batch(10).feed("numpy"), disable=True)
    assert bar.total == 100
    assert sum(1 for _ in bar) == 100


# State


def resumed(pipeline, state):
    feed = pipeline.feed("numpy")
    feed.load_state_dict(json.loads(json.dumps(state)))
    return feed


@given(rows=st.integers(1, 300), batch=st.integers(1, 40), part=st.floats(0, 1), passes=st.integers(1, 2))
def test_a_resumed_feed_yields_the_same_rest_and_the_same_next_epoch(rows, batch, part, passes):
    pipeline = fb.from_arrays(numbers(rows)).shuffle(seed=4).batch(batch).repeat(passes)
    with pipeline.feed("numpy") as feed:
        iterator = iter(feed)
        for _ in range(round(part * len(feed))):
            next(iterator)
        state = feed.state_dict()
        rest, following = received(iterator), received(feed)
    with resumed(pipeline, state) as other:
        assert received(other) == rest
        assert received(other) == following


def test_state_counts_received_batches_and_not_prepared_ones():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    iterator = iter(feed)
    assert feed.state_dict()["position"] == 0
    next(iterator)
    assert feed.state_dict()["position"] == 10
    threading.Event().wait(0.05)
    assert feed.state_dict()["position"] == 10


def test_state_survives_leaving_the_loop():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    for step, _ in enumerate(feed):
        if step == 4:
            break
    assert feed.state_dict()["position"] == 50


def test_state_after_an_epoch_is_the_start_of_the_next():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    received(feed)
    assert (feed.state_dict()["epoch"], feed.state_dict()["position"]) == (1, 0)


@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_feed_resumes_in_mid_epoch_on_another_number_of_shards(counts, steps):
    def shards(count):
        return [fb.from_arrays(numbers()).shuffle(seed=6).shard(index, count).batch(16) for index in range(count)]

    feeds = [pipeline.feed("numpy") for pipeline in shards(counts[0])]
    seen = [row for feed in feeds for _, batch in zip(range(steps), feed, strict=False) for row in batch.tolist()]
    for pipeline in shards(counts[1]):
        seen += flat(received(resumed(pipeline, feeds[0].state_dict())))
    assert sorted(seen) == list(range(1000))


def test_a_feed_with_another_batch_size_resumes_at_the_same_row():
    source = fb.from_arrays(numbers()).shuffle(seed=6)
    feed = source.batch(100).feed("numpy")
    first = [next(feed).tolist() for _ in range(3)]
    rest = flat(received(resumed(source.batch(7), feed.state_dict())))
    assert sorted(flat(first) + rest) == list(range(1000))


def test_a_state_of_another_pipeline_is_refused():
    state = fb.from_arrays(numbers()).shuffle(seed=1).batch(10).feed("numpy").state_dict()
    with pytest.raises(StateError, match="another pipeline"):
        fb.from_arrays(numbers()).shuffle(seed=2).batch(10).feed("numpy").load_state_dict(state)


def test_a_state_beyond_the_data_is_refused():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    with pytest.raises(StateError, match="beyond the 1000 rows"):
        feed.load_state_dict(feed.state_dict() | {"position": 5000})


# Iterators, threads and lifetime


def test_a_second_iterator_ends_the_first():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    first, second = iter(feed), iter(feed)
    next(second)
    with pytest.raises(FeedError, match="newer iterator"):
        next(first)
    assert sum(1 for _ in second) == 99


def test_a_group_is_not_reused_between_taking_and_handing_it_off():
    feed = fb.from_arrays(np.arange(200_000)).batch(1000).feed("numpy", host_bytes="4MiB")
    hand_off, slow, found = feed._hand_off.hand_off, [], []

    class Slow:
        def hand_off(self, roots):
            if threading.current_thread() in slow:
                threading.Event().wait(0.2)
            return hand_off(roots)

    feed._hand_off = Slow()
    iterator = iter(feed)

    def consume():
        try:
            found.append(int(next(iterator)[0]))
        except FeedError:
            found.append(0)

    slow.append(threading.Thread(target=consume))
    slow[0].start()
    threading.Event().wait(0.05)
    assert sum(len(batch) for batch in feed) == 200_000
    slow[0].join()
    assert found == [0]


def test_changes_of_an_array_between_epochs_appear_in_the_next_epoch():
    data = np.zeros(100)
    with fb.from_arrays(data).batch(10).feed("numpy") as feed:
        for epoch in range(3):
            data[:] = epoch
            assert {float(row) for batch in feed for row in batch} == {epoch}


def test_a_map_is_called_once_per_batch_and_once_to_infer_specs():
    calls = []
    with fb.from_arrays(np.arange(40)).batch(10).map(lambda batch: calls.append(1) or batch).feed("numpy") as feed:
        for _ in range(3):
            received(feed)
    assert len(calls) == 1 + 3 * 4


def test_feeds_of_one_pipeline_do_not_disturb_each_other(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros((20_000, 100), np.float32))
    pipeline = fb.from_files(tmp_path / "data.npy").batch(100)
    first, second = pipeline.feed("numpy"), pipeline.feed("numpy")
    iterator = iter(second)
    next(iterator), next(first)
    first.close()
    assert sum(1 for _ in iterator) == 199
    assert len(list(pipeline.feed("numpy"))) == 200


def test_next_continues_the_newest_epoch():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    next(feed)
    for _ in feed:
        break
    assert len(next(feed)) == 10


def test_the_error_of_a_map_has_no_unrelated_context():
    feed = fb.from_arrays(numbers()).batch(10).map(lambda batch: 1 / 0 if batch[0] else batch).feed("numpy")
    with pytest.raises(ZeroDivisionError) as caught:
        received(feed)
    assert caught.value.__context__ is None


def test_two_threads_share_an_epoch_without_losing_or_repeating_a_batch():
    feed = fb.from_arrays(numbers(20_000)).shuffle(seed=0).batch(10).feed("numpy")
    iterator, found = iter(feed), [[], []]

    def consume(mine):
        for batch in iterator:
            mine.extend(batch.tolist())

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(20_000))


def test_a_feed_without_a_variable_lives_until_its_loop_ends():
    assert len(received(fb.from_arrays(numbers()).batch(10).feed("numpy"))) == 100


def forebay_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("forebay")}


def test_an_abandoned_feed_ends_its_threads():
    before = forebay_threads()
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    next(iter(feed))
    assert forebay_threads() - before
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None
    assert not forebay_threads() - before


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_feed_cannot_be_pickled_or_copied_and_the_error_names_an_alternative(duplicate):
    with (
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy") as feed,
        pytest.raises(TypeError, match=r"Send the pipeline .* state_dict\(\)"),
    ):
        duplicate(feed)


def test_a_closed_feed_raises():
    feed = fb.from_arrays(numbers()).batch(10).feed("numpy")
    iterator = iter(feed)
    next(iterator)
    feed.close()
    with pytest.raises(FeedClosedError):
        iter(feed)
    with pytest.raises(FeedError):
        list(iterator)


# Stats, explain and plans


def test_stats_name_the_slowest_stage_and_the_waiting_time():
    def slow(batch):
        threading.Event().wait(0.01)
        return batch

    with fb.from_arrays(numbers(100)).batch(10).map(slow).feed("numpy") as feed:
        received(feed)
        stats = feed.stats()
    stages = stats["stages"]
    assert stages["transform"]["seconds"] > 0.09
    assert stats["slowest_stage"] == max(stages, key=lambda name: stages[name]["seconds"])
    assert stats["wait_seconds"] > 0
    assert stats["batches"] == 10
    assert json.dumps(stats)


def test_explain_gives_a_reason_for_each_number():
    with fb.from_arrays({"x": np.zeros((1000, 4), np.float32)}).shuffle(seed=0).batch(32).feed("numpy") as feed:
        text = feed.explain()
        assert sum(len(batch["x"]) for batch in feed) == 1000
        after = feed.explain()
    assert "x float32[4]" in text
    assert {"order", "threads", "group", "slots", "memory"} <= set(text.split())
    assert "so far: 32 batches" in after


@pytest.mark.parametrize(("device", "expected"), [("cpu", False), (SimulatedEngine(), True)], ids=["host", "device"])
def test_the_oldest_free_slot_is_filled_next_on_a_device(device, expected):
    with fb.from_arrays(np.zeros(100)).batch(10).feed("numpy", device=device) as feed:
        assert feed._runner._exchange.ring.oldest_first is expected


def test_a_budget_too_small_for_a_batch_is_refused_with_the_needed_size():
    with pytest.raises(
        BudgetError,
        match=r"host_bytes=1.0 MiB is too small: a batch of 100 rows takes 7.6 MiB.* Pass host_bytes='31MiB'",
    ):
        fb.from_arrays(np.zeros((1000, 10_000))).batch(100).feed("numpy", host_bytes="1MiB")


@given(rows=st.integers(1, 100), width=st.integers(1, 5000), batch=st.integers(1, 100))
def test_the_plan_stays_within_the_budget(rows, width, batch):
    pipeline = fb.from_arrays(np.broadcast_to(np.float32(0), (rows, width))).batch(batch)
    try:
        plan = pipeline.feed("numpy", host_bytes="8MiB").plan
    except BudgetError:
        return
    assert plan.nbytes <= 8 << 20
