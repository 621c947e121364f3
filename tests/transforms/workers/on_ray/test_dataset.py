"""A Ray Dataset as the source of a feed."""

import numpy as np
import pytest
import ray
import ray.data
from tests.transforms.workers.on_ray.conftest import assert_same, copy_batches
from tests.transforms.workers.on_ray.maps import delay_first_block, narrow, two_columns, wider_at_the_end, words

from forebay.adapters.ray import from_dataset
from forebay.errors import PipelineError, SourceError, SpecError, StateError

ROWS = 500


@pytest.fixture
def ids(cluster):
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data.range(ROWS, override_num_blocks=6)


@pytest.fixture
def dataset(ids):
    return ids.map_batches(two_columns)


def numbers(batches):
    return np.concatenate([batch["number"] for batch in batches])


def test_rows_come_in_the_order_of_the_dataset_in_every_epoch(dataset):
    with from_dataset(dataset).batch(64).feed() as feed:
        first, second = copy_batches(feed), copy_batches(feed)
    assert np.array_equal(numbers(first), np.arange(ROWS))
    assert np.array_equal(numbers(second), np.arange(ROWS))
    assert np.array_equal(first[1]["x"], np.arange(128.0, 256.0).reshape(64, 2))


def test_rows_keep_their_order_if_the_first_block_is_the_last_to_be_ready(ids):
    delayed = ids.map_batches(delay_first_block, batch_size=None)
    with from_dataset(delayed).batch(64).feed() as feed:
        assert np.array_equal(np.concatenate([batch["id"] for batch in feed]), np.arange(ROWS))


def test_a_dataset_that_is_shuffled_with_a_seed_has_the_same_order_in_every_epoch(ids):
    with from_dataset(ids.random_shuffle(seed=3)).batch(64).feed() as feed:
        first, second = ([batch["id"].copy() for batch in feed] for _ in range(2))
    assert np.array_equal(np.concatenate(first), np.concatenate(second))
    assert not np.array_equal(np.concatenate(first), np.arange(ROWS))


def test_a_feed_of_a_dataset_resumes_in_mid_epoch(dataset):
    with from_dataset(dataset).shuffle(seed=1, window="4KB").batch(64).feed() as feed:
        batches = iter(feed)
        next(batches)
        state, rest = feed.state_dict(), numbers(copy_batches(batches))
    with from_dataset(dataset).shuffle(seed=1, window="4KB").batch(64).feed() as feed:
        feed.load_state_dict(state)
        assert np.array_equal(numbers(copy_batches(feed)), rest)


def test_a_dataset_in_any_order_gives_every_row_and_refuses_to_resume(dataset):
    with from_dataset(dataset, order="any").batch(64).feed() as feed:
        batches = iter(feed)
        first, state = [next(batches)], feed.state_dict()
        assert sorted(numbers(copy_batches(first) + copy_batches(batches))) == list(range(ROWS))
        feed.load_state_dict(state)
        with pytest.raises(StateError, match=r"come in any order.*order='kept'"):
            next(iter(feed))


def test_a_map_on_ray_leaves_room_for_the_dataset(dataset):
    pipeline = from_dataset(dataset).shuffle(seed=1, window="4KB").batch(64)
    with pipeline.map(narrow, where="ray").feed() as on_ray, pipeline.map(narrow).feed() as in_threads:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    assert on_ray.plan.input.cluster.workers == 1


def test_a_column_of_strings_is_refused_with_its_name(ids):
    with pytest.raises(SpecError, match="word"):
        from_dataset(ids.map_batches(words))


def test_blocks_that_differ_are_refused(ids):
    with (
        from_dataset(ids.map_batches(wider_at_the_end, batch_size=None)).batch(25).feed() as feed,
        pytest.raises(SourceError, match=r"'x' is float64\[3\] in one block and float64\[2\] in the first"),
    ):
        copy_batches(feed)


def test_a_wrong_dataset_or_order_is_refused(dataset):
    with pytest.raises(PipelineError, match=r"got an object of type list\. Pass a ray\.data\.Dataset"):
        from_dataset([1, 2])
    with pytest.raises(PipelineError, match="'kept' or 'any'"):
        from_dataset(dataset, order="mixed")
