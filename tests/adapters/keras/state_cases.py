"""A fit that resumes from the state of a feed sees the remaining rows.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH
from tests.adapters.keras.keras_models import (
    RowsSeen,
    make_model,
    make_recording_model,
    not_torch,
    states_of,
    weights_of,
)

import forebay as fb


@pytest.mark.parametrize(("stop", "built"), [(0, True), (3, True), (4, True), (7, True), (1, False), (9, False)])
def test_a_resumed_fit_sees_the_remaining_rows(arrays, stop, built):
    shuffled = fb.from_arrays(arrays).shuffle(seed=2).batch(BATCH)
    model, whole = make_recording_model()
    states, _ = states_of(shuffled.feed("keras"), model, epochs=3)
    seen = RowsSeen()
    resumed = keras.Sequential([*([keras.Input((4,))] if built else []), keras.layers.Dense(1)])
    resumed.compile("sgd", seen, run_eagerly=True)
    feed = shuffled.feed("keras")
    feed.load_state_dict(states[stop])
    resumed.fit(feed, initial_epoch=(stop + 1) // 5, epochs=3, verbose=0)
    assert seen.batches == whole.batches[stop + 1 :]


def test_a_fit_resumed_after_an_epoch_ends_with_the_same_weights(arrays):
    shuffled = fb.from_arrays(arrays).shuffle(seed=2).batch(BATCH)
    whole, first, second = make_model(), make_model(), make_model()
    whole.fit(shuffled.feed("keras"), epochs=3, verbose=0)
    _, states = states_of(shuffled.feed("keras"), first, epochs=1)
    second.set_weights(first.get_weights())
    feed = shuffled.feed("keras")
    feed.load_state_dict(states[0])
    second.fit(feed, initial_epoch=1, epochs=3, verbose=0)
    for got, expected in zip(weights_of(second), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


@not_torch
def test_with_steps_per_execution_the_state_counts_all_finished_steps(pipeline):
    states, _ = states_of(pipeline.feed("keras"), make_model(steps_per_execution=2), epochs=1)
    assert [state["position"] for state in states[:2]] == [2 * BATCH, 4 * BATCH]
