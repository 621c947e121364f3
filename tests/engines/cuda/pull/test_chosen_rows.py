"""The device pulls the rows that select, skip, split, filter and sample choose."""

import re

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import assert_same_as_host, random_rows

import forebay as fb
from forebay.engines.cuda.pull.order_tables import OrderTables

ROWS = fb.from_arrays({"x": random_rows(9000, 40, "u1"), "label": np.arange(9000) % 7})


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize(
    "chosen",
    [
        ROWS.skip(1234),
        ROWS.select(np.arange(9000)[::-7]).shuffle(seed=1),
        ROWS.split(0.98, 0.02)[0].shuffle(seed=1),
        ROWS.split(0.9, 0.1, seed=None)[1],
        ROWS.filter(lambda label: label < 2, fields="label").shuffle(seed=1),
        ROWS.sample(balance="label", rows=500),
        ROWS.sample(weights=np.arange(9000), rows=500, replacement=False),
    ],
)
def test_a_device_pulls_the_chosen_rows(chosen, resident, framework):
    assert_same_as_host(chosen.batch(100).take(5), framework, epochs=2, resident=resident)


A, B = (fb.from_arrays({"x": random_rows(rows, 40, "u1")}) for rows in (1200, 700))
CHOSEN = {  # name: (pipeline, whether the device computes the row numbers)
    "skip": (ROWS.skip(1234).shuffle(seed=1), True),
    "select": (ROWS.select(np.arange(9000)[::-7]).shuffle(seed=1), True),
    "split": (ROWS.split(0.9, 0.1)[1].shuffle(seed=1), True),
    "sample": (ROWS.sample(balance="label", rows=500), True),
    "sample without replacement": (ROWS.sample(weights=np.arange(9000), rows=500, replacement=False), False),
    "block shuffle": (ROWS.shuffle(seed=1, block=64), False),
    "interleave": (fb.interleave(A.shuffle(seed=1), B.shuffle(seed=2), weights=(7, 3), seed=3), True),
    "interleave again": (fb.interleave(A.shuffle(seed=1), B.shuffle(seed=2), weights=(7, 3), stop="all"), True),
    "concat": (fb.concat(A.shuffle(seed=1), B.skip(5)), True),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_device_computes_the_row_numbers_of_most_orders(name, framework):
    pipeline, on_device = CHOSEN[name]
    assert_same_as_host(pipeline.batch(100), framework, epochs=2, resident="never")
    assert ("compute_rows" in framework.gpu.launched) == on_device


def test_explain_says_where_row_numbers_are_computed(framework):
    selected = ROWS.select(np.arange(9000)[::-7]).batch(100)
    assert re.search(r"row numbers +device +.*5\.0 KiB", assert_same_as_host(selected, framework, resident="never"))
    text = assert_same_as_host(selected, framework, resident="never", device_bytes="400KB", epochs=2)
    assert "row numbers" in text


def test_the_host_computes_the_row_numbers_if_the_device_has_no_memory_for_tables(framework, monkeypatch):
    def refuse(self, table):
        raise MemoryError("out of device memory")

    monkeypatch.setattr(OrderTables, "_upload", refuse)
    text = assert_same_as_host(ROWS.select(np.arange(500)[::-1]).batch(100), framework, resident="never")
    assert "out of device memory" in text
    assert "compute_rows" not in framework.gpu.launched
