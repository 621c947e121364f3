"""A real Ray cluster of several nodes on this machine: a raylet, an object store and workers of its own for each."""

import random
import time
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from forebay.executors import ray_member


@pytest.fixture(scope="package")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def taken(feed):
    """An epoch, kept."""
    return [{name: np.array(leaf) for name, leaf in batch.items()} for batch in feed]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], strict=True)


def worker_processes():
    """The processes of feeds' workers on the nodes that this process started."""
    return [process for process in psutil.Process().children(recursive=True) if _is_worker(process)]


def _is_worker(process):
    try:
        return process.cmdline()[:1] == ["ray::RayWorker"] or "ray::RayWorker." in process.cmdline()[0]
    except (psutil.NoSuchProcess, IndexError):
        return False


def kill_any(seed):
    """Kill one worker, as the kernel does when memory runs out."""
    until = time.monotonic() + 30
    while not worker_processes() and time.monotonic() < until:
        time.sleep(0.05)
    random.Random(seed).choice(worker_processes()).kill()


def wait_for_workers(feed, count, seconds=60):
    until = time.monotonic() + seconds
    while feed.stats()["ray"]["workers"] < count and time.monotonic() < until:
        time.sleep(0.1)
    assert feed.stats()["ray"]["workers"] == count


def wait_until_no_workers(seconds=20):
    until = time.monotonic() + seconds
    while worker_processes() and time.monotonic() < until:
        time.sleep(0.1)
    return worker_processes()


@contextmanager
def workers_with_path(folder):
    """Let workers of feeds made here look for packages in this folder first."""
    before = ray_member.OPTIONS
    ray_member.OPTIONS = before | {"runtime_env": {"env_vars": {"PYTHONPATH": str(folder)}}}
    yield
    ray_member.OPTIONS = before
