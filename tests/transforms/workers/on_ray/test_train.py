"""Feeds in the workers of Ray Train. One trainer serves all tests, because its workers take long to start."""

import json

import numpy as np
import pytest
from tests.pipeline.ranks.processes import all_rows, step_counts
from tests.transforms.workers.on_ray.maps import ROWS, rows, train_on_a_shard

import forebay as fb


@pytest.fixture(scope="module")
def results_folder(cluster, tmp_path_factory):
    """Train with two workers, and return the folder to which each worker saved its rows."""
    from ray.train import RunConfig, ScalingConfig  # loads torch, which the collection of the tests must not load
    from ray.train.torch import TorchTrainer

    folder = tmp_path_factory.mktemp("train")
    node = cluster.add_node(num_cpus=2)
    TorchTrainer(
        train_on_a_shard,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(folder / "run")),
    ).fit()
    cluster.remove_node(node)
    return folder


def test_two_train_workers_with_maps_on_ray_get_every_row_once_and_take_equal_steps(results_folder):
    halves = [np.load(results_folder / f"{rank}.npy") for rank in range(2)]
    with fb.from_arrays(rows()).shuffle(seed=7).batch(ROWS).feed() as feed:
        expected = next(iter(feed))["number"]
    assert np.array_equal(halves[0].ravel(), expected[0::2])
    assert np.array_equal(halves[1].ravel(), expected[1::2])


def test_automatic_shards_of_train_workers_share_an_epoch_and_take_the_same_steps(results_folder):
    ranks = [json.loads((results_folder / f"{rank}.json").read_text()) for rank in range(2)]
    assert all_rows(ranks) == list(range(41))
    assert step_counts(ranks) == {5}
    assert all("reported by Ray Train and torch.distributed" in rank["explain"] for rank in ranks)
