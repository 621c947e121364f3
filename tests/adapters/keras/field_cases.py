"""Fields of a batch as inputs, targets and sample weights of a model.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import assert_same_weights, make_model, map_on_device

import forebay as fb
from forebay.errors import PipelineError, SpecError


@pytest.mark.parametrize("names", [["left", "right"], ("left", "right")])
def test_named_fields_become_inputs(arrays, names):
    x, y = arrays
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([left, right]))
    model = keras.Model({"left": left, "right": right} if isinstance(names, list) else (left, right), output)
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    inputs = {"left": x, "right": -x} if isinstance(names, list) else (x, -x)
    weights = np.linspace(0, 1, ROWS, dtype="float32")
    expected = model.evaluate(inputs, y, sample_weight=weights, batch_size=BATCH, verbose=0)
    fields = fb.from_arrays({"w": weights, "left": x, "target": y, "right": -x}).batch(BATCH)
    feed = fields.feed("keras", x=names, y="target", sample_weight="w")
    np.testing.assert_allclose(model.evaluate(feed, verbose=0), expected, rtol=1e-5)


def test_packed_texts_become_inputs():
    tokens, offsets = np.arange(1, 200, dtype="int32"), [0, 3, 50, 57, 100, 199]
    packed = fb.from_ragged({"tokens": tokens, "y": tokens.astype("float32")}, offsets).pack(60).batch(2)
    names = ["tokens", "segment_ids", "positions"]
    inputs = [keras.Input((60,), name=name) for name in names]
    model = keras.Model(dict(zip(names, inputs, strict=True)), keras.layers.Add()(inputs))
    model.compile("sgd", "mae")
    errors = [abs(batch["segment_ids"] + batch["positions"]).mean() for batch in packed.feed("numpy")]
    found = model.evaluate(packed.feed("keras", x=names, y="y"), verbose=0)
    np.testing.assert_allclose(found, np.mean(errors), rtol=1e-5)


@pytest.mark.parametrize(
    ("tree", "fields", "words"),
    [
        ({"a": 1, "b": 2}, {}, "which of the fields"),
        ({"a": 1, "b": 2}, {"x": "image"}, "no field 'image'"),
        ({"a": 1, "b": 2}, {"x": "a", "y": ["b", "c"]}, "no field 'c'"),
        ({"a": 1, "b": 2}, {"y": "b"}, "which of the fields"),
        ({"a": 1, "b": 2}, {"x": "a", "sample_weight": "b"}, "Name them too"),
        ((1, 2), {"x": "a"}, "names need a pipeline of dicts"),
        ((1, 2, 3, 4), {}, "4 parts"),
    ],
)
def test_invalid_fields_are_refused(tree, fields, words):
    arrays = (
        {name: np.zeros((4, 1)) for name in tree} if isinstance(tree, dict) else tuple(np.zeros((4, 1)) for _ in tree)
    )
    with pytest.raises(PipelineError, match=words):
        fb.from_arrays(arrays).batch(2).feed("keras", **fields)


# The output specs of a map on the device are known only after the first batch.


@pytest.mark.parametrize("weights", [None, {0: 0.5, 1: 3.0}])
@pytest.mark.parametrize("names", [{}, {"x": "image", "y": "label"}])
def test_a_device_map_trains_like_arrays(arrays, names, weights):
    x, y = arrays[0], arrays[1] % 2
    expected, model = make_model(), make_model()
    expected.fit(2 * x, y, batch_size=BATCH, shuffle=False, epochs=2, class_weight=weights, verbose=0)
    give = (lambda x, y: {"label": y, "image": 2 * x}) if names else (lambda x, y: (2 * x, y))
    with map_on_device((x, y), give, **names) as feed:
        model.fit(feed, epochs=2, class_weight=weights, verbose=0)
    assert_same_weights(model, expected)


def test_fields_missing_from_a_device_map_are_refused_at_the_first_batch(arrays):
    feed = map_on_device(arrays, lambda x, y: {"image": x, "label": y}, x="picture")
    with feed, pytest.raises(PipelineError, match="no field 'picture'"):
        make_model().predict(feed, verbose=0)


def test_class_weights_with_sample_weights_of_a_device_map_are_refused(arrays):
    with map_on_device(arrays, lambda x, y: (x, y, y)) as feed, pytest.raises(PipelineError, match="class_weight"):
        make_model().fit(feed, class_weight={0: 2.0}, verbose=0)


def test_ragged_rows_are_refused():
    with pytest.raises(PipelineError, match=r"Pad them: batch\(..., pad=0\)"):
        fb.from_source([(np.zeros(3), 0), (np.zeros(1), 1)]).batch(2, ragged=True).feed("keras")


def test_a_model_is_fitted_on_batches_of_similar_length():
    rows = [(np.full(length, length, np.float32), np.float32(length)) for length in [3, 9, 1, 4, 4, 2, 8, 9] * 4]
    inputs = keras.Input((None,))
    outputs = keras.ops.sum(inputs, axis=1, keepdims=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    model.compile(loss="mse", optimizer="sgd")
    with fb.from_source(rows).shuffle(seed=0).batch(tokens=18, pad=0).feed("keras") as feed:
        history = model.fit(feed, epochs=2, verbose=0)
        assert len(history.history["loss"]) == 2
        assert feed.batch_size is None


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, batch):
        return np.full((4, 2), batch, "float32"), np.zeros(4, "float32")


def test_a_dataset_of_keras_has_batches_and_no_rows():
    with pytest.raises(SpecError, match=r"a PyDataset yields batches.*fb\.from_batches"):
        fb.from_source(Batches())
    with fb.from_batches(Batches()).feed("keras") as feed:
        assert [len(batch[0]) for batch in feed] == [4, 4, 4]
