"""A real Ray cluster on this machine. Each node has its own raylet, object store and workers."""

import random
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from ray._private import services
from ray.cluster_utils import Cluster

from forebay.transforms.workers import ray_actor_handle

# Longer timeouts, because Ray ends workers that start slowly. No memory monitor, because it may kill workers.
SLOW_MACHINE_SETTINGS = {
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_memory_monitor_refresh_ms": "0",
}


_clusters = ExitStack()  # the running cluster


@pytest.fixture(scope="session")
def cluster():
    return _clusters.enter_context(_running_cluster())


@pytest.hookimpl(trylast=True)  # after the teardown of the fixtures, which may need the cluster
def pytest_runtest_teardown(item, nextitem):
    """Shut the cluster down after the last test of this folder. Otherwise, it would use the CPU until all tests end."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _clusters.close()


@contextmanager
def _running_cluster():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SLOW_MACHINE_SETTINGS.items():
            patch.setenv(name, value)
        patch.setattr(services, "get_node", _with_longer_timeout(services.get_node))
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


def _with_longer_timeout(get_node):
    """Give a node 300 s to start instead of the 30 s of Ray."""

    def get(*arguments):
        until = time.monotonic() + 300
        while time.monotonic() < until:
            with suppress(RuntimeError):
                return get_node(*arguments)
            time.sleep(0.1)
        return get_node(*arguments)

    return get


def copy_batches(feed):
    """Return copies of all batches of an epoch."""
    return [{name: np.array(leaf) for name, leaf in batch.items()} for batch in feed]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], strict=True)


def worker_processes():
    """Return the processes of Ray workers on nodes that this process started."""
    return [process for process in psutil.Process().children(recursive=True) if _is_worker(process)]


def _is_worker(process):
    try:
        return process.cmdline()[:1] == ["ray::RayWorker"] or "ray::RayWorker." in process.cmdline()[0]
    except (psutil.NoSuchProcess, IndexError):
        return False


def any_worker(seed):
    """Wait until there are workers, and return a random one."""
    until, found = time.monotonic() + 300, worker_processes()
    while not found and time.monotonic() < until:
        time.sleep(0.05)
        found = worker_processes()
    return random.Random(seed).choice(found)


def kill(process):
    """Kill a process as the out-of-memory killer does, and wait until it is gone."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
    while _is_worker(process):
        time.sleep(0.01)


def wait_for_workers(feed, count, seconds=300):
    until = time.monotonic() + seconds
    while feed.stats()["ray"]["workers"] < count and time.monotonic() < until:
        time.sleep(0.1)
    assert feed.stats()["ray"]["workers"] == count


def wait_until_no_workers(seconds=120):
    until = time.monotonic() + seconds
    while worker_processes() and time.monotonic() < until:
        time.sleep(0.1)
    return worker_processes()


def wait_until_no_cpu_is_free(seconds=120):
    """Wait until the cluster reports no free CPU; its report is delayed."""
    until = time.monotonic() + seconds
    while ray.available_resources().get("CPU", 0) and time.monotonic() < until:
        time.sleep(0.1)


@contextmanager
def workers_with_path(folder):
    """Let workers of feeds created in this context search this folder first for packages."""
    before = ray_actor_handle.ACTOR_OPTIONS
    ray_actor_handle.ACTOR_OPTIONS = before | {"runtime_env": {"env_vars": {"PYTHONPATH": str(folder)}}}
    yield
    ray_actor_handle.ACTOR_OPTIONS = before
