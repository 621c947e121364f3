"""Feeds in the workers of Ray Train."""

import numpy as np
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from tests.transforms.workers.on_ray.maps import ROWS, rows, train_on_a_shard

import forebay as fb


def test_two_train_workers_with_maps_on_ray_get_every_row_once_and_take_equal_steps(cluster, tmp_path):
    node = cluster.add_node(num_cpus=2)
    TorchTrainer(
        train_on_a_shard,
        train_loop_config={"folder": str(tmp_path), "where": "ray"},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(tmp_path / "run")),
    ).fit()
    cluster.remove_node(node)
    halves = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    with fb.from_arrays(rows()).shuffle(seed=7).batch(ROWS).feed() as feed:
        expected = next(iter(feed))["number"]
    assert np.array_equal(halves[0].ravel(), expected[0::2])
    assert np.array_equal(halves[1].ravel(), expected[1::2])
