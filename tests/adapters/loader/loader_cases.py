"""A feed as a DataLoader of PyTorch, without a trainer."""

import copy
import gc
import itertools
import json
import pickle
import threading
import weakref
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.adapters.trainers.training import run_example
from tests.support.received import batches_of, rows_of
from torch.distributed import checkpoint as dcp
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

import forebay as fb
from forebay.errors import FeedClosedError, FeedError, PipelineError, StateError
from forebay.order.schedule import Schedule
from forebay.testing import SimulatedEngine

# The second and the third warning are from PyTorch 2.4.
quiet_checkpoints = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled",
    "ignore:torch.distributed is unavailable",
    "ignore:TypedStorage is deprecated",
)


def make_pipeline(rows=100, batch=16, **options):
    return fb.from_arrays(np.arange(rows)).shuffle(seed=2).batch(batch, **options)


def rebuild(loader, *, skip=0):
    """Return a DataLoader without the first `skip` batches, as trainers build it."""

    class Skipping(BatchSampler):
        def __init__(self):
            pass

        def __iter__(self):
            return itertools.islice(loader.batch_sampler, skip, None)

    return DataLoader(loader.dataset, batch_sampler=Skipping(), collate_fn=loader.collate_fn)


def test_a_loader_has_the_type_and_the_attributes_of_a_data_loader():
    loader = make_pipeline(drop_remainder=True).feed("loader")
    assert isinstance(loader, DataLoader)
    assert isinstance(loader.dataset, Dataset)
    assert isinstance(loader.sampler, DistributedSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert (len(loader), len(loader.dataset), loader.batch_size, loader.drop_last) == (6, 100, 16, True)
    assert (loader.num_workers, loader.pin_memory, loader.persistent_workers) == (0, False, False)
    assert (loader.sampler.num_replicas, loader.sampler.rank, len(loader.sampler)) == (1, 0, 100)
    assert "batch 16 rows" in repr(loader)
    next(iter(loader))
    assert "6 batches of 16 rows" in repr(loader)


def test_a_loader_yields_the_batches_of_a_feed_of_torch():
    pipeline = fb.from_arrays({"x": np.arange(50.0), "y": (np.arange(50), np.arange(50))}).shuffle(seed=1).batch(8)
    with pipeline.feed("loader") as loader, pipeline.feed("torch") as feed:
        for _ in range(2):
            for batch, expected in zip(loader, feed, strict=True):
                assert torch.equal(batch["x"], expected["x"])
                assert torch.equal(batch["y"][1], expected["y"][1])


def test_a_loader_feeds_a_device():
    pipeline = fb.from_arrays(np.arange(40)).batch(8)
    with pipeline.feed("loader", device=SimulatedEngine()) as loader:
        assert rows_of(loader) == list(range(40))


@given(
    rows=st.integers(1, 200),
    batch=st.integers(1, 40),
    passes=st.integers(1, 3),
    limit=st.none() | st.integers(1, 9),
    skip=st.integers(0, 12),
    epoch=st.integers(0, 3),
    drop_remainder=st.booleans(),
)
def test_a_rebuilt_loader_skips_batches_of_the_same_order(rows, batch, passes, limit, skip, epoch, drop_remainder):
    batch = min(batch, rows)
    pipeline = make_pipeline(rows, batch, drop_remainder=drop_remainder).repeat(passes)
    pipeline = pipeline if limit is None else pipeline.take(limit)
    with pipeline.feed("loader") as loader, pipeline.feed("torch") as feed:
        feed.set_epoch(epoch)
        expected = batches_of(feed)
        loader.set_epoch(epoch)
        assert batches_of(rebuild(loader, skip=skip)) == expected[skip:]
        assert len(loader) == len(expected)
        assert len(loader.dataset) >= sum(map(len, expected))
        if skip < len(expected):
            assert batches_of(loader) == batches_of(feed)


@given(steps=st.integers(0, 20), count=st.integers(1, 4), other=st.integers(1, 4))
@example(steps=7, count=2, other=3)  # two rows are left, so one of three shards has no row
def test_a_state_resumes_on_another_number_of_shards(steps, count, other):
    def loaders(count):
        unbatched = fb.from_arrays(np.arange(100)).shuffle(seed=2)
        return [unbatched.shard(index, count).batch(7).feed("loader") for index in range(count)]

    seen = []
    first = loaders(count)
    for loader in first:
        seen += rows_of(itertools.islice(loader, steps))
    state = json.loads(json.dumps(first[0].state_dict()))
    for loader in loaders(other):
        loader.load_state_dict(state)
        seen += rows_of(loader) if state["epoch"] == 0 else []
        assert loader.state_dict()["epoch"] == 1
    assert sorted(seen) == list(range(100))


def test_a_state_of_another_pipeline_is_refused():
    loader = make_pipeline(50).feed("loader")
    with pytest.raises(StateError, match="another pipeline"):
        loader.load_state_dict(make_pipeline(60).feed("loader").state_dict())


def test_a_newer_iterator_ends_an_older_one():
    loader = make_pipeline().feed("loader")
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    with pytest.raises(FeedError, match="newer iterator"):
        next(first)


def test_a_stream_has_no_length_and_ends():
    loader = fb.from_generator(lambda: iter(np.arange(10)), spec=np.int64(0)).batch(4).feed("loader")
    for thing in (loader, loader.dataset):
        with pytest.raises(TypeError, match="no length"):
            len(thing)
    assert batches_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches_of(rebuild(loader, skip=1)) == [[4, 5, 6, 7], [8, 9]]
    assert loader.state_dict()["epoch"] == 2


def test_ready_made_batches_have_no_batch_size():
    batches = [torch.arange(4), torch.arange(4, 8)]
    loader = fb.from_batches(batches).feed("loader")
    assert loader.batch_size is None
    assert len(loader) == 2
    assert batches_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches_of(rebuild(loader, skip=1)) == [[4, 5, 6, 7]]


def test_rows_of_the_dataset_are_refused_with_advice():
    dataset = make_pipeline().feed("loader").dataset
    with pytest.raises(FeedError, match=r"no rows by index, but got \[3\]"):
        dataset[3]
    with pytest.raises(FeedError, match="whole batches"):
        next(iter(DataLoader(dataset, batch_size=4)))


def test_a_dataloader_of_a_loader_is_refused_with_advice():
    loader = make_pipeline().feed("loader")
    with pytest.raises(FeedError, match=r"already a DataLoader.*\[0\]\. Iterate the loader itself"):
        next(iter(DataLoader(loader)))
    assert len(batches_of(loader)) == len(loader)


def test_a_batch_of_the_sampler_has_the_positions_of_its_rows():
    loader = fb.from_arrays(np.arange(10)).shard(1, 2).batch(3).feed("loader")
    assert [list(rows) for rows in loader.batch_sampler] == [[1, 3, 5], [7, 9]]
    assert list(loader.sampler) == [1, 3, 5, 7, 9]
    assert rows_of(loader) == [1, 3, 5, 7, 9]


def test_the_sampler_computes_the_positions_of_each_batch_once():
    loader = make_pipeline().feed("loader")
    with mock.patch.object(Schedule, "positions", autospec=True, side_effect=Schedule.positions) as positions:
        assert list(loader.sampler) == list(range(100))
    assert positions.call_count == len(loader)


def test_a_loader_is_sent_to_another_process_with_its_position():
    loader = make_pipeline().feed("loader")
    untouched = pickle.loads(pickle.dumps(loader))
    expected = batches_of(itertools.islice(loader, 2))
    copies = pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)
    assert batches_of(untouched)[:2] == expected
    for each in copies:
        assert each.state_dict() == loader.state_dict()
        assert len(batches_of(each)) == len(loader) - 2


def test_a_requested_epoch_is_sent_to_another_process():
    loader = make_pipeline().feed("loader")
    loader.set_epoch(3)
    copy_of_loader = pickle.loads(pickle.dumps(loader))
    assert batches_of(copy_of_loader) == batches_of(loader)


def test_an_iterator_continues_if_another_launcher_reports_the_same_rank(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    loader = make_pipeline().feed("loader")
    batches = iter(loader)
    next(batches)
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    assert len(list(batches)) == len(loader) - 1


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(PipelineError, match="takes no 'x'"):
        make_pipeline().feed("loader", x="image")
    with pytest.raises(PipelineError, match="no batch size"):
        fb.from_arrays(np.arange(4)).feed("loader")
    with pytest.raises(PipelineError, match="resident='yes' is unknown"):
        make_pipeline().feed("loader", resident="yes")
    with pytest.raises(PipelineError, match="whole number"):
        make_pipeline().feed("loader").set_epoch(-1)


def test_the_error_of_a_closed_loader_says_what_to_do():
    loader = make_pipeline().feed("loader")
    with loader:
        batch = next(iter(loader))
    with pytest.raises(FeedClosedError, match="make a new one"):
        next(iter(loader))
    assert len(batch) == 16


def test_a_dropped_loader_ends_its_threads():
    loader = make_pipeline().feed("loader")
    batches = iter(loader)
    next(batches)
    reference = weakref.ref(loader._loader_feed.feed)
    gc.collect()
    gc.disable()
    try:
        del loader, batches
        assert reference() is None
    finally:
        gc.enable()
    assert not any(thread.name.startswith("forebay") for thread in threading.enumerate())


def test_a_loader_has_statistics_and_a_plan():
    loader = make_pipeline().feed("loader")
    list(loader)
    assert loader.stats()["batches"] == len(loader)
    assert "torch" in loader.explain()


@quiet_checkpoints
def test_distributed_checkpoints_carry_the_state(tmp_path):
    loader, resumed = make_pipeline().feed("loader"), make_pipeline().feed("loader")
    expected = batches_of(make_pipeline().feed("torch"))
    list(itertools.islice(loader, 3))
    dcp.save({"loader": loader}, checkpoint_id=tmp_path)
    dcp.load({"loader": resumed}, checkpoint_id=tmp_path)
    assert batches_of(resumed) == expected[3:]


@quiet_checkpoints
def test_the_loop_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("Your own loop")["train"].state_dict()["epoch"] == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_loader_uses_a_rank_that_is_set_after_the_loader_was_made(monkeypatch, count):
    """Lightning, for example, starts the ranks during `fit`."""
    pipeline = fb.from_arrays(np.arange(31)).shuffle(seed=2).batch(4)
    seen, lengths = [], set()
    for index in range(count):
        with monkeypatch.context() as environment:
            loader = pipeline.feed("loader")
            assert len(loader) == 8
            next(iter(loader))  # some scripts read one batch before they train
            loader.set_epoch(0)
            environment.setenv("RANK", str(index))
            environment.setenv("WORLD_SIZE", str(count))
            lengths.add(len(loader))
            assert loader.sampler.num_replicas == count
            batches = batches_of(loader)
            seen += [row for rows in batches for row in rows]
            assert len(batches) == len(loader)
            assert f"{index} of {count}" in loader.explain()
    assert len(lengths) == 1
    assert sorted(seen) == list(range(31))


def test_a_state_loaded_before_the_rank_begins_is_kept(monkeypatch):
    first, loader = make_pipeline().feed("loader"), make_pipeline().feed("loader")
    list(itertools.islice(first, 2))
    loader.load_state_dict(first.state_dict())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    rest = rows_of(first)  # a new iteration begins epoch 1
    assert len(rest) == 50
    assert len(rows_of(loader)) == (100 - 32) // 2


def test_a_sharded_pipeline_is_not_divided_again(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = fb.from_arrays(np.arange(12)).shard(0, 3).batch(4).feed("loader")
    assert rows_of(loader) == [0, 3, 6, 9]
