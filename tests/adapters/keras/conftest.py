"""The rows that the Keras cases train on.

This file does not import Keras: pytest also imports it in processes that must not load a framework.
"""

import numpy as np
import pytest

import forebay as fb

ROWS, BATCH = 70, 16  # five batches, the last one is shorter


@pytest.fixture
def arrays():
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    return x, np.arange(ROWS, dtype="float32")[:, None]


@pytest.fixture
def pipeline(arrays):
    return fb.from_arrays(arrays).batch(BATCH)
