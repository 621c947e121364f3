"""KerasFeed on the JAX backend: prefetched batches and distributions.

`tests/test_framework_cases.py` runs this file in the process of Keras on JAX.
"""

import jax
import keras
import pytest
from keras.distribution import DataParallel, set_distribution
from keras.src.backend.jax import trainer
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import (
    assert_same_weights,
    make_model,
    make_recording_model,
    staged_feed,
    states_of,
)


@pytest.fixture
def accelerator(monkeypatch):
    """Make Keras prefetch: Keras prefetches only if JAX has an accelerator."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("on_device", [True, False])
def test_jax_prefetches_only_host_batches(arrays, accelerator, monkeypatch, built, on_device):
    prefetched, distribute = [], trainer._distribute_data
    monkeypatch.setattr(trainer, "_distribute_data", lambda data: prefetched.append(data) or distribute(data))
    model = make_model()
    if not built:
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with staged_feed(arrays, on_device=on_device) as feed:
        states, _ = states_of(feed, model, epochs=1)
    assert [state["batches"] for state in states[:4]] == [1, 2, 3, 4]  # without the prefetched batch
    assert bool(prefetched) is not on_device


@pytest.mark.parametrize("on_device", [True, False])
def test_a_fit_resumed_after_an_error_sees_the_batch_that_jax_prefetched(arrays, accelerator, on_device):
    failures = iter([KeyError("once")])

    def fail_once(batch):
        error = next(failures, None) if batch[1][0, 0] == 2 * BATCH else None
        if error is not None:
            raise error
        return batch

    model, seen = make_recording_model()
    with staged_feed(arrays, on_device=on_device, function=fail_once) as feed:
        with pytest.raises(KeyError, match="once"):
            model.fit(feed, verbose=0)
        feed.load_state_dict(feed.state_dict())
        model.fit(feed, verbose=0)
    assert seen.rows == [*range(ROWS)]


def test_a_keras_distribution_accepts_batches_on_the_device(arrays):
    expected = make_model()
    expected.fit(*arrays, batch_size=BATCH, shuffle=False, verbose=0)
    set_distribution(DataParallel(devices=["cpu:0"], auto_shard_dataset=False))
    try:
        model = make_model()
        with staged_feed(arrays) as feed:
            model.fit(feed, verbose=0)
    finally:
        set_distribution(None)
    assert_same_weights(model, expected)
