"""How much of a cluster a feed takes, and what it holds in flight; no Ray is needed to say so."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import BudgetError
from forebay.pipeline.planner import make_plan
from forebay.transforms.workers.ray_cluster import Cluster, share_workers


@pytest.fixture(scope="module")
def demand():
    with fb.from_arrays(np.zeros((5000, 1000), np.float32)).batch(32).map(np.negative).feed() as feed:
        return replace(feed.plan.demand, cluster=Cluster(8, "as asked", "read", "files"))


def test_a_feed_takes_what_is_free():
    assert share_workers(cpus=16, free=12, nodes=4, asked=None, shards=1)[0] == 12


def test_ranks_share_the_cluster_whoever_begins():
    assert [share_workers(cpus=16, free=free, nodes=4, asked=None, shards=2)[0] for free in (14, 8)] == [8, 8]


def test_what_is_asked_for_is_taken_whatever_is_free():
    assert share_workers(cpus=16, free=0, nodes=4, asked=3, shards=1) == (3, "as asked, of 16 CPUs on 4 nodes")


def test_a_full_cluster_is_waited_for_by_one_worker():
    assert share_workers(cpus=4, free=0, nodes=1, asked=None, shards=1)[0] == 1


@given(mib=st.integers(2, 64))
def test_all_that_is_held_and_in_flight_keeps_the_budget(demand, mib):
    plan = make_plan(replace(demand, host_nbytes=mib << 20), cores=4)
    assert plan.nbytes <= mib << 20
    assert plan.threads * plan.task_nbytes < plan.nbytes


def test_tasks_get_smaller_before_there_are_fewer(demand):
    long = replace(demand, batches=100_000)
    roomy, tight = (make_plan(replace(long, host_nbytes=mib << 20), cores=4) for mib in (256, 16))
    assert tight.threads == roomy.threads == 16
    assert tight.group_batches < roomy.group_batches


def test_a_budget_too_small_for_one_task_is_refused(demand):
    with pytest.raises(BudgetError, match="host_bytes"):
        make_plan(replace(demand, host_nbytes=200_000), cores=4)
