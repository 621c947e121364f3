"""The plan of a feed stays within its budget; `explain()` and `stats()` describe the feed."""

import json
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.received import batches_of

import forebay as fb
from forebay.errors import BudgetError
from forebay.testing import SimulatedEngine


def test_stats_name_the_slowest_stage_and_the_waiting_time():
    def slow(batch):
        threading.Event().wait(0.01)
        return batch

    with fb.from_arrays(np.arange(100)).batch(10).map(slow).feed("numpy") as feed:
        batches_of(feed)
        stats, text = feed.stats(), feed.explain()
    stages = stats["stages"]
    assert stages["transform"]["seconds"] > 0.09
    assert stats["slowest_stage"] == max(stages, key=lambda name: stages[name]["seconds"])
    assert text.endswith("if the consumer waits for a map of pure Python code, write map(function, where='process')")
    assert stats["wait_seconds"] > 0
    assert stats["batches"] == 10
    assert json.dumps(stats)


def test_explain_lists_the_fields_the_decisions_and_the_received_batches():
    with fb.from_arrays({"x": np.zeros((1000, 4), np.float32)}).shuffle(seed=0).batch(32).feed("numpy") as feed:
        text = feed.explain()
        assert sum(len(batch["x"]) for batch in feed) == 1000
        after = feed.explain()
    assert "x float32[4]" in text
    assert {"order", "threads", "group", "slots", "memory"} <= set(text.split())
    assert "so far: 32 batches" in after


def test_a_long_name_does_not_widen_the_other_lines_of_explain():
    def a_map_whose_name_is_longer_than_the_names_of_all_other_decisions(batch):
        return batch

    long_map = a_map_whose_name_is_longer_than_the_names_of_all_other_decisions
    with fb.from_arrays(np.zeros(8)).batch(4).map(long_map).feed("numpy") as feed:
        (order,) = (line for line in feed.explain().splitlines() if line.startswith("  order"))
    assert order.index("natural") == 24


def test_the_plan_and_explain_have_the_same_number_of_slots():
    with fb.from_arrays(np.zeros(8)).batch(4).feed("numpy") as feed:
        (line,) = (line.split() for line in feed.explain().splitlines() if line.startswith("  slots"))
        assert f" {line[1]} slots," in repr(feed.plan)


@pytest.mark.parametrize(("device", "expected"), [("cpu", False), (SimulatedEngine(), True)], ids=["host", "device"])
def test_the_oldest_free_slot_is_filled_next_on_a_device(device, expected):
    with fb.from_arrays(np.zeros(100)).batch(10).feed("numpy", device=device) as feed:
        assert feed._runner._exchange.ring.oldest_first is expected


def test_a_budget_too_small_for_a_batch_is_refused_with_the_needed_size():
    with pytest.raises(
        BudgetError,
        match=r"host_bytes=1.0 MiB is too small: a batch of 100 rows takes 7.6 MiB.* Pass host_bytes='31MiB'",
    ):
        fb.from_arrays(np.zeros((1000, 10_000))).batch(100).feed("numpy", host_bytes="1MiB")


@given(rows=st.integers(1, 100), width=st.integers(1, 5000), batch=st.integers(1, 100))
def test_the_plan_stays_within_the_budget(rows, width, batch):
    pipeline = fb.from_arrays(np.broadcast_to(np.float32(0), (rows, width))).batch(batch)
    try:
        plan = pipeline.feed("numpy", host_bytes="8MiB").plan
    except BudgetError:
        return
    assert plan.nbytes <= 8 << 20
