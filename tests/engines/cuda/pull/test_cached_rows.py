"""Cached rows on a device: staged while the cache fills, then pulled or resident."""

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import (
    assert_same,
    assert_same_as_host,
    feed_of,
    host_epoch,
    random_rows,
    read_all,
)

import forebay as fb

ROWS = {"x": random_rows(900, 40, "u1"), "row": np.arange(900)}


def invert(row):
    return {"x": 255 - row["x"], "row": row["row"]}


def pipeline_of(*place):
    return fb.from_arrays(ROWS).map(invert).cache(*place).shuffle(seed=1).batch(100)


@pytest.fixture(params=["ram", "disk"])
def place(request, tmp_path):
    return "1MB" if request.param == "ram" else tmp_path


@pytest.mark.parametrize("resident", ["never", "auto"])
def test_a_feed_pulls_rows_or_keeps_them_resident_after_its_cache_is_complete(framework, place, resident):
    pipeline, plain = pipeline_of(place), fb.from_arrays(ROWS).map(invert).shuffle(seed=1).batch(100)
    with feed_of(pipeline, framework, resident=resident) as feed:
        assert feed.plan.transport is None
        for epoch in range(3):
            assert_same(read_all(framework, feed), host_epoch(plain, epoch))
        assert feed.plan.transport is not None
        assert (feed.plan.transport.resident_rows == 900) == (resident == "auto")


def test_a_new_feed_pulls_the_rows_of_a_complete_cache(framework, place):
    pipeline = pipeline_of(place)
    host_epoch(pipeline, 0)
    assert_same_as_host(pipeline, framework)


def test_rows_of_a_cache_with_too_small_a_budget_stay_staged(framework):
    pipeline = pipeline_of(48 * 899)
    with feed_of(pipeline, framework) as feed:
        for epoch in range(3):
            assert_same(read_all(framework, feed), host_epoch(pipeline, epoch))
        assert feed.plan.transport is None
