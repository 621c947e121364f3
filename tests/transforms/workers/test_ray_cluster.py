"""The share of a cluster that a feed takes, and its bytes in flight, without a Ray cluster."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import BudgetError
from forebay.pipeline.planner import make_plan
from forebay.pipeline.ray_request import plan_ray_workers
from forebay.transforms.workers.ray_cluster import ClusterShare, share_workers


@pytest.fixture(scope="module")
def plan_input():
    with fb.from_arrays(np.zeros((5000, 1000), np.float32)).batch(32).map(np.negative).feed() as feed:
        return replace(feed.plan.input, cluster=ClusterShare(8, "as requested", "read", "files"))


def test_a_feed_takes_all_free_cpus():
    assert share_workers(cpus=16, free=12, nodes=4, requested=None, shards=1)[0] == 12


def test_each_rank_takes_its_part_in_any_start_order():
    assert [share_workers(cpus=16, free=free, nodes=4, requested=None, shards=2)[0] for free in (14, 8)] == [8, 8]


def test_a_requested_number_of_workers_is_taken_even_if_no_cpu_is_free():
    assert share_workers(cpus=16, free=0, nodes=4, requested=3, shards=1) == (3, "as requested, of 16 CPUs on 4 nodes")


@pytest.mark.parametrize(
    ("cpus", "free", "shards", "expected"),
    [
        (16, 12, 1, (12, "12 of 16 CPUs on 4 nodes are free")),
        (16, 3, 2, (3, "3 of 16 CPUs on 4 nodes are free")),
        (16, 8, 2, (8, "a rank's part of 16 CPUs on 4 nodes")),
        (500, 400, 1, (128, "the most workers of one feed; 400 of 500 CPUs on 4 nodes are free")),
        (500, 400, 2, (128, "the most workers of one feed; a rank's part of 500 CPUs on 4 nodes")),
    ],
)
def test_the_reason_names_what_limits_the_workers(cpus, free, shards, expected):
    assert share_workers(cpus=cpus, free=free, nodes=4, requested=None, shards=shards) == expected


@pytest.mark.parametrize("free", [5, 8, 16])
def test_half_of_the_cpus_is_left_for_a_dataset(monkeypatch, free):
    resources = SimpleNamespace(cpus=16, free_cpus=free, nodes=1)
    connection = SimpleNamespace(connect=lambda: resources)
    monkeypatch.setitem(sys.modules, "forebay.transforms.workers.ray_connection", connection)
    pipeline = fb.from_generator(lambda: iter([np.zeros(3)])).batch(2).map(np.negative, where="ray")
    monkeypatch.setattr(type(pipeline.source), "needs_cluster", True)
    one = plan_ray_workers(pipeline, pipeline.transforms, fixed_size=True)
    half = plan_ray_workers(replace(pipeline, shard_count=2), pipeline.transforms, fixed_size=True)
    assert (one.workers, one.why) == (8, "8 of 16 CPUs on 1 node; the Ray Dataset needs the others")
    assert (half.workers, half.why) == (4, "a rank's part of 8 of 16 CPUs on 1 node; the Ray Dataset needs the others")


def test_a_feed_starts_one_worker_even_if_no_cpu_is_free():
    assert share_workers(cpus=4, free=0, nodes=1, requested=None, shards=1)[0] == 1


@given(mib=st.integers(2, 64))
def test_held_bytes_and_bytes_in_flight_stay_within_the_budget(plan_input, mib):
    plan = make_plan(replace(plan_input, host_nbytes=mib << 20), cores=4)
    assert plan.nbytes <= mib << 20
    assert plan.threads * plan.task_nbytes < plan.nbytes


def test_a_small_budget_reduces_the_task_size_before_the_number_of_tasks(plan_input):
    long = replace(plan_input, batches=100_000)
    roomy, tight = (make_plan(replace(long, host_nbytes=mib << 20), cores=4) for mib in (256, 16))
    assert tight.threads == roomy.threads == 16
    assert tight.group_batches < roomy.group_batches


def test_a_budget_too_small_for_one_task_is_refused(plan_input):
    with pytest.raises(BudgetError, match="host_bytes"):
        make_plan(replace(plan_input, host_nbytes=200_000), cores=4)
