"""Arguments of `fit`, `evaluate` and `predict` that Keras ignores or that contradict a feed are refused.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import numpy as np
import pytest
from tests.adapters.keras.conftest import ROWS
from tests.adapters.keras.keras_models import make_model, make_recording_model

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
    with pytest.raises(PipelineError, match="Make a second one"):
        make_model().fit(feed, validation_data=feed, verbose=0)


def test_a_batch_size_for_training_arrays_is_allowed_with_a_validation_feed(arrays, pipeline):
    history = make_model().fit(*arrays, batch_size=8, validation_data=pipeline.feed("keras"), verbose=0)
    assert "val_loss" in history.history


def test_if_forebay_cannot_see_the_arguments_of_fit_it_warns(pipeline, monkeypatch, caplog):
    monkeypatch.setattr(internals, "_METHODS", ())
    model, seen = make_recording_model()
    model.fit(pipeline.feed("keras"), class_weight={0: 2.0}, epochs=2, verbose=0)
    assert seen.rows == list(range(ROWS)) * 2
    assert "Keras ignores them" in caplog.text
