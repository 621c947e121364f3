"""The device pulls the rows that select, skip, split, filter and sample choose."""

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import assert_same_as_host, random_rows

import forebay as fb

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
