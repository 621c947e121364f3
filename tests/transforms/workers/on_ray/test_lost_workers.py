"""A lost worker or node causes retries. No row is lost, and no order changes."""

from itertools import islice

import numpy as np
import pytest
from tests.transforms.workers.on_ray.conftest import (
    any_worker,
    assert_same,
    copy_batches,
    kill,
    wait_for_workers,
    wait_until_no_workers,
)
from tests.transforms.workers.on_ray.maps import blur, delay, die_at_300, rows

import forebay as fb
from forebay.errors import WorkerError

pytestmark = pytest.mark.usefixtures("cluster")


def epochs(count):
    return fb.from_arrays(rows()).shuffle(seed=2).repeat(count).map(blur).batch(10)


def slow_epochs(count, **options):
    return epochs(count).map(delay, where="ray", **options)


def take_until_lost(feed, batches, count):
    """Take batches until `count` workers are lost, and 100 more."""
    ours = []
    while feed.stats()["ray"]["lost_workers"] < count:
        ours += copy_batches(islice(batches, 20))
    return ours + copy_batches(islice(batches, 100))


def test_kills_of_random_workers_lose_no_row_and_change_no_order():
    with epochs(2).feed() as in_threads, slow_epochs(2).feed() as on_ray:
        batches, ours = iter(on_ray), []
        for seed in range(5):
            worker = any_worker(seed)  # chosen before the batches, while all workers are busy
            ours += copy_batches(islice(batches, 18))
            kill(worker)
        ours += copy_batches(batches)
        assert_same(ours, copy_batches(in_threads))
    assert on_ray.stats()["ray"]["lost_workers"] >= 3  # a kill may hit a worker that was already dying
    assert on_ray.stats()["ray"]["retried_tasks"] > 0


def test_a_node_killed_in_mid_epoch_loses_no_row_and_changes_no_order(cluster):
    node = cluster.add_node(num_cpus=2)
    with epochs(None).feed() as in_threads, slow_epochs(None, workers=4).feed() as on_ray:
        wait_for_workers(on_ray, 4)
        batches = iter(on_ray)
        ours = copy_batches(islice(batches, 20))
        cluster.remove_node(node, allow_graceful=False)  # its workers continue for a while
        ours += take_until_lost(on_ray, batches, 2)
        assert_same(ours, copy_batches(islice(in_threads, len(ours))))


def test_rows_that_kill_every_worker_are_named_and_the_feed_stays_usable():
    with fb.from_arrays(rows()).map(die_at_300, where="ray").batch(30).feed() as on_ray:
        with pytest.raises(WorkerError, match=r"5 Ray workers died.*die_at_300") as caught:
            copy_batches(on_ray)
        assert any("300" in note for note in caught.value.__notes__)
        assert np.array_equal(next(iter(on_ray))["number"], np.arange(30))


def test_closing_in_mid_epoch_ends_every_worker():
    on_ray = slow_epochs(10).feed()
    next(iter(on_ray))
    on_ray.close()
    assert wait_until_no_workers() == []


def test_an_unreferenced_feed_ends_its_workers():
    next(iter(slow_epochs(10).feed()))
    assert wait_until_no_workers() == []
