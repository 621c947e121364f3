"""Arguments of `fit`, `evaluate` and `predict` that contradict a feed are refused.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

from contextlib import suppress

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import ROWS
from tests.adapters.keras.keras_models import make_model, make_recording_model

import forebay as fb
from forebay.adapters.keras import internals
from forebay.errors import PipelineError, UnknownNameError


@pytest.mark.parametrize(
    "argument",
    [
        {"y": np.zeros((ROWS, 1))},
        {"sample_weight": np.ones(ROWS)},
        {"batch_size": 8},
        {"shuffle": True},
        {"shuffle": False},
    ],
)
def test_fit_refuses_arguments_that_keras_would_ignore(pipeline, argument):
    with pytest.raises(PipelineError, match=f"{next(iter(argument))}.*Leave the argument out"):
        make_model().fit(pipeline.feed("keras"), verbose=0, **argument)


def test_fit_and_feed_name_split_instead_of_a_validation_split(pipeline):
    words = r"validation_split.*train, validation = pipeline\.split\(0\.9, 0\.1\)"
    with pytest.raises(PipelineError, match=words):
        make_model().fit(pipeline.feed("keras"), validation_split=0.5, verbose=0)
    with pytest.raises(PipelineError, match=words):
        make_model().fit(pipeline, validation_split=0.5, verbose=0)
    with pytest.raises(PipelineError, match=words):
        pipeline.feed("keras", validation_split=0.5)


def test_a_validation_split_next_to_validation_data_is_refused(pipeline):
    feed, validation = pipeline.feed("keras"), pipeline.feed("keras")
    with pytest.raises(PipelineError, match=r"validation_split=0\.5.*Leave the argument out"):
        make_model().fit(feed, validation_data=validation, validation_split=0.5, verbose=0)


def test_an_unknown_option_gets_the_nearest_name(pipeline):
    with pytest.raises(PipelineError, match=r"takes no 'sample_weights'\. Write sample_weight=\."):
        pipeline.feed("keras", sample_weights="w")


def test_attributes_of_other_libraries_get_a_hint(pipeline):
    with pytest.raises(UnknownNameError, match=r"pipeline\.shuffle\(seed=0\)"):
        pipeline.feed("keras").shuffle(1000)
    assert not hasattr(pipeline.feed("keras"), "__array__")


def test_evaluate_and_predict_refuse_a_batch_size(pipeline):
    with pytest.raises(PipelineError, match="batch_size=8"):
        make_model().evaluate(pipeline.feed("keras"), batch_size=8, verbose=0)
    with pytest.raises(PipelineError, match="batch_size=8"):
        make_model().predict(pipeline.feed("keras"), batch_size=8, verbose=0)


def test_validation_arguments_with_a_validation_feed_are_refused(arrays, pipeline):
    with pytest.raises(PipelineError, match="validation_batch_size"):
        make_model().fit(
            pipeline.feed("keras"), validation_data=pipeline.feed("keras"), validation_batch_size=8, verbose=0
        )
    with pytest.raises(PipelineError, match="validation_data"):
        make_model().fit(pipeline.feed("keras"), validation_data=(pipeline.feed("keras"), arrays[1]), verbose=0)


def test_one_feed_for_training_and_validation_is_refused(pipeline):
    feed = pipeline.feed("keras")
    with pytest.raises(PipelineError, match="Make a second feed"):
        make_model().fit(feed, validation_data=feed, verbose=0)


def test_a_batch_size_for_training_arrays_is_allowed_with_a_validation_feed(arrays, pipeline):
    history = make_model().fit(*arrays, batch_size=8, validation_data=pipeline.feed("keras"), verbose=0)
    assert "val_loss" in history.history


def stream_of(pipeline):
    return fb.from_generator(lambda: zip(*pipeline.source.arrays, strict=True))


ENDLESS = {
    "batches": lambda pipeline: pipeline.batch(16).repeat(),
    "rows": lambda pipeline: pipeline.repeat().batch(16),
    "a stream": lambda pipeline: stream_of(pipeline).repeat().batch(16),
    "batches of a stream": lambda pipeline: stream_of(pipeline).batch(16).repeat(),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_rows_without_an_end_need_a_number_of_steps(arrays, case):
    def feed():
        return ENDLESS[case](fb.from_arrays(arrays)).feed("keras")

    model, finite = make_model(), fb.from_arrays(arrays).batch(16).feed("keras")
    with pytest.raises(PipelineError, match=r"fit\(\) would never end.*steps_per_epoch=.*repeat\(n\)"):
        model.fit(feed(), verbose=0)
    with pytest.raises(PipelineError, match=r"fit\(\) would never end.*validation_steps="):
        model.fit(finite, validation_data=feed(), verbose=0)
    with pytest.raises(PipelineError, match=r"evaluate\(\) would never end.* steps="):
        model.evaluate(feed(), verbose=0)
    with pytest.raises(PipelineError, match=r"predict\(\) would never end.* steps="):
        model.predict(feed(), verbose=0)
    model.fit(feed(), steps_per_epoch=2, validation_data=feed(), validation_steps=1, verbose=0)
    assert len(model.predict(feed(), steps=2, verbose=0)) == 32


class StopAfter(keras.callbacks.Callback):
    """Ends `fit` and `evaluate` after two batches."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch >= 1

    def on_test_batch_end(self, batch, logs=None):
        self.model.stop_evaluating = batch >= 1


def test_a_callback_may_end_a_fit_on_rows_without_an_end(arrays):
    feed = fb.from_arrays(arrays).repeat().batch(16).feed("keras")
    make_model().fit(feed, callbacks=[StopAfter()], verbose=0)
    make_model().evaluate(feed, callbacks=[StopAfter()], verbose=0)
    with pytest.raises(PipelineError, match="would never end"):
        make_model().fit(feed, callbacks=[], verbose=0)
    with pytest.raises(PipelineError, match="would never end"):
        make_model().fit(fb.from_arrays(arrays).batch(16).feed("keras"), validation_data=feed, verbose=2)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras does not know how long a stream is
def test_rows_that_end_need_no_number_of_steps(arrays):
    rows = fb.from_arrays(arrays)
    stream = stream_of(rows)
    for pipeline in (rows.batch(16).repeat(2), rows.repeat().take(40).batch(16), rows.batch(16).repeat().take(3)):
        make_model().fit(pipeline.feed("keras"), verbose=0)
    for pipeline in (stream.repeat(2).batch(16), stream.repeat().take(40).batch(16), stream.repeat().batch(16).take(3)):
        make_model().fit(pipeline.feed("keras"), verbose=0)


def test_a_loss_needs_targets(arrays):
    x, y = arrays
    named = fb.from_arrays({"image": x, "label": y}).batch(16)
    words = r"needs targets for the loss 'mse', and the feed has none. Name a field of \['image', 'label'\]"
    model = make_model()
    with pytest.raises(PipelineError, match=words):
        model.fit(named.feed("keras", x="image"), verbose=0)
    with pytest.raises(PipelineError, match=words):
        model.evaluate(named.feed("keras", x="image"), verbose=0)
    with pytest.raises(PipelineError, match=words):
        model.fit(named.feed("keras", x="image", y="label"), validation_data=named.feed("keras", x="image"), verbose=0)
    with pytest.raises(PipelineError, match=r"from_arrays\(\(x, y\)\)"):
        model.fit(fb.from_arrays(x).batch(16).feed("keras"), verbose=0)
    assert len(model.predict(named.feed("keras", x="image"), verbose=0)) == ROWS


def test_a_model_may_compute_its_loss_without_targets(arrays):
    class Autoencoder(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.mean(keras.ops.square(x[:, :1] - y_pred))

    feed = fb.from_arrays(arrays[0]).batch(16).feed("keras")
    make_model(Autoencoder).fit(feed, validation_data=fb.from_arrays(arrays[0]).batch(16).feed("keras"), verbose=0)


def test_a_method_of_the_model_object_may_compute_the_loss_without_targets(arrays):
    model = make_model()
    model.compute_loss = lambda x=None, y=None, y_pred=None, sample_weight=None, training=True: keras.ops.mean(y_pred)
    feed = fb.from_arrays(arrays[0]).batch(16).feed("keras")
    model.fit(feed, validation_data=fb.from_arrays(arrays[0]).batch(16).feed("keras"), verbose=0)


@pytest.mark.parametrize("name", ["train_step", "make_train_function"])
def test_a_model_with_its_own_training_needs_no_targets(arrays, name):
    model, feed = make_model(), fb.from_arrays(arrays[0]).batch(16).feed("keras")
    setattr(model, name, getattr(model, name))
    with suppress(ValueError):  # this method of Keras itself needs targets
        model.fit(feed, verbose=0)
    assert feed.stats()["batches"] > 0


def test_if_forebay_cannot_see_the_arguments_of_fit_it_warns(pipeline, monkeypatch, caplog):
    monkeypatch.setattr(internals, "_METHODS", ())
    model, seen = make_recording_model()
    model.fit(pipeline.feed("keras"), class_weight={0: 2.0}, epochs=2, verbose=0)
    assert seen.rows == list(range(ROWS)) * 2
    assert "Keras ignores them" in caplog.text
