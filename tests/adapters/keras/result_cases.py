"""Models train, evaluate and predict on a KerasFeed as they do on arrays.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import RowsSeen, assert_same_weights, make_model, make_recording_model, not_torch

import forebay as fb
from forebay.errors import PipelineError


def test_variables_are_read_back():
    variable = keras.Variable(np.arange(3.0))
    with fb.Readback() as readback:
        readback.put((variable, fb.all_finite(variable)))
    ((values, is_finite),) = (result.value for result in readback.drain())
    assert np.array_equal(values, np.arange(3.0))
    assert is_finite


def test_evaluate_returns_the_same_as_with_arrays(arrays, pipeline):
    model = make_model(weighted_metrics=["mae"])
    expected = model.evaluate(*arrays, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(model.evaluate(pipeline.feed("keras"), verbose=0), expected, rtol=1e-5)


def test_predict_keeps_the_order_and_the_short_last_batch(arrays, pipeline):
    model = make_model()
    expected = model.predict(arrays[0], batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(model.predict(pipeline.feed("keras"), verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_predict_accepts_a_single_array(arrays):
    model = make_model()
    feed = fb.from_arrays(arrays[0]).batch(BATCH).feed("keras")
    expected = model.predict(arrays[0], batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(model.predict(feed, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_fit_returns_the_same_weights_as_with_arrays(arrays, pipeline):
    fed, plain = make_model(), make_model()
    plain.fit(*arrays, batch_size=BATCH, shuffle=False, epochs=2, verbose=0)
    fed.fit(pipeline.feed("keras"), epochs=2, verbose=0)
    assert_same_weights(fed, plain)


def test_the_model_gets_every_row_once_an_epoch_and_each_epoch_has_its_own_order(arrays):
    model, seen = make_recording_model()
    model.fit(fb.from_arrays(arrays).shuffle(seed=3).batch(BATCH).feed("keras"), epochs=2, verbose=0)
    first, second = seen.rows[:ROWS], seen.rows[ROWS:]
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second


def test_a_model_that_keras_must_build_first_misses_no_row(pipeline):
    seen = RowsSeen()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", seen, run_eagerly=True)
    feed = pipeline.feed("keras")
    model.fit(feed, verbose=0)
    assert seen.rows == list(range(ROWS))
    assert feed.state_dict()["epoch"] <= 1


def test_predict_builds_a_model_without_losing_rows(arrays, pipeline):
    model = keras.Sequential([keras.layers.Dense(1)])
    feed = pipeline.feed("keras")
    predicted = model.predict(feed, verbose=0)
    np.testing.assert_allclose(predicted, model.predict(arrays[0], verbose=0), rtol=1e-5, atol=1e-6)


@not_torch
def test_several_steps_in_an_execution_see_every_row_once(arrays, pipeline):
    fed, plain = make_model(steps_per_execution=3), make_model()  # the second execution requests a sixth batch
    plain.fit(*arrays, batch_size=BATCH, shuffle=False, epochs=3, verbose=0)
    fed.fit(pipeline.feed("keras"), epochs=3, verbose=0)
    assert_same_weights(fed, plain)
    np.testing.assert_allclose(
        fed.predict(pipeline.feed("keras"), verbose=0), fed.predict(arrays[0], verbose=0), rtol=1e-4, atol=1e-5
    )


def test_sample_weights_are_applied(arrays):
    weights = np.linspace(0, 2, ROWS, dtype="float32")
    model = make_model(weighted_metrics=["mae"])
    expected = model.evaluate(*arrays, sample_weight=weights, batch_size=BATCH, verbose=0)
    feed = fb.from_arrays((*arrays, weights)).batch(BATCH).feed("keras")
    np.testing.assert_allclose(model.evaluate(feed, verbose=0), expected, rtol=1e-5)


@pytest.mark.parametrize("one_hot", [False, True])
def test_class_weights_are_applied_as_with_arrays(arrays, one_hot):
    labels = np.arange(ROWS, dtype="int64") % 4
    y = np.eye(4, dtype="float32")[labels] if one_hot else labels
    loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
    class_weight = {0: 0.5, 1: 3.0, 2: 0.0}  # class 3 has weight 1
    trained = []
    for data in ((arrays[0], y), (fb.from_arrays((arrays[0], y)).batch(BATCH).feed("keras"),)):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="softmax")])
        model.compile("sgd", loss)
        options = {"batch_size": BATCH, "shuffle": False} if len(data) == 2 else {}
        model.fit(*data, class_weight=class_weight, verbose=0, **options)
        trained.append(model)
    assert_same_weights(*trained)


@pytest.mark.parametrize("weights", [[1.0, 2.0], {"cat": 1.0}, {-1: 1.0}, {}])
def test_class_weights_must_be_a_dict_of_classes(pipeline, weights):
    with pytest.raises(PipelineError, match="must be a dict of classes"):
        make_model().fit(pipeline.feed("keras"), class_weight=weights, verbose=0)


def test_class_weights_and_sample_weights_together_are_refused(arrays):
    feed = fb.from_arrays((*arrays, np.ones(ROWS, "float32"))).batch(BATCH).feed("keras")
    with pytest.raises(PipelineError, match="class_weight"):
        make_model().fit(feed, class_weight={0: 2.0}, verbose=0)
