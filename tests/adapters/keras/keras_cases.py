"""KerasFeed on every backend.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import contextlib
import gc
import weakref

import keras
import numpy as np
import pytest
from tests.feed.test_build import DeviceLikeEngine, FakeDeviceHandOff

import forebay as fb
from forebay.adapters.keras import internals
from forebay.errors import FeedClosedError, FeedError, PipelineError

BACKEND = keras.backend.backend()
ROWS, BATCH = 70, 16  # five batches, the last one is shorter

only_for = {
    name: pytest.mark.skipif(name != BACKEND, reason=f"only for the {name} backend")
    for name in ("tensorflow", "jax", "torch")
}
not_torch = pytest.mark.skipif(
    BACKEND == "torch", reason="the torch backend runs one step per execution and traces no function"
)

if BACKEND == "tensorflow":
    import tensorflow as tf

    # Two devices on one CPU, for the distribution strategies; TensorFlow must not have started yet.
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


class RowsSeen(keras.losses.Loss):
    """A loss that records the rows that an eager model gets, by their targets."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def call(self, y_true, y_pred):
        with contextlib.suppress(Exception):  # the tensor is symbolic while Keras builds the model
            self.batches.append(np.asarray(y_true).ravel().astype(int).tolist())
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    @property
    def rows(self):
        return [row for batch in self.batches for row in batch]


class Hook(keras.callbacks.Callback):
    """A callback made of functions: `Hook(on_epoch_end=...)` calls each function at its event."""

    def __init__(self, **hooks):
        super().__init__()
        for name, hook in hooks.items():
            setattr(self, name, hook)


class CountsTraces(keras.Sequential):
    traces = 0

    def train_step(self, *arguments):
        self.traces += 1
        return super().train_step(*arguments)


@pytest.fixture
def arrays():
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    return x, np.arange(ROWS, dtype="float32")[:, None]


@pytest.fixture
def pipeline(arrays):
    return fb.from_arrays(arrays).batch(BATCH)


def make_model(kind=keras.Sequential, **options):
    keras.utils.set_random_seed(0)
    model = kind([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse"} | options)
    return model


def make_recording_model(**options):
    loss = RowsSeen()
    return make_model(loss=loss, run_eagerly=True, **options), loss


def address_of(tensor):
    return np.asarray(tensor).__array_interface__["data"][0]


def weights_of(model):
    return [np.asarray(weight) for weight in model.get_weights()]


# Results


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
    for got, expected in zip(weights_of(fed), weights_of(plain), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


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
        trained.append(weights_of(model))
    for got, expected in zip(*trained, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", [[1.0, 2.0], {"cat": 1.0}, {-1: 1.0}, {}])
def test_class_weights_must_be_a_dict_of_classes(pipeline, weights):
    with pytest.raises(PipelineError, match="must be a dict of classes"):
        make_model().fit(pipeline.feed("keras"), class_weight=weights, verbose=0)


def test_class_weights_and_sample_weights_together_are_refused(arrays):
    feed = fb.from_arrays((*arrays, np.ones(ROWS, "float32"))).batch(BATCH).feed("keras")
    with pytest.raises(PipelineError, match="class_weight"):
        make_model().fit(feed, class_weight={0: 2.0}, verbose=0)


# Fields


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


# Maps on a device; their output specs are known only after the first batch


def staged_feed(arrays, *, on_device=True, function=None, **fields):
    """Feed rows that must be staged. `on_device` feeds a fake device, and `function` is mapped there."""
    x, y = arrays
    pipeline = fb.from_arrays((np.asfortranarray(x), y)).batch(BATCH)
    if function is not None:
        pipeline = pipeline.map(function, where="device" if on_device else "thread")
    return pipeline.feed("keras", device=DeviceLikeEngine(FakeDeviceHandOff()) if on_device else "cpu", **fields)


def mapped_on_device(arrays, function, **fields):
    return staged_feed(arrays, function=lambda batch: function(*map(keras.ops.convert_to_tensor, batch)), **fields)


@pytest.mark.parametrize("weights", [None, {0: 0.5, 1: 3.0}])
@pytest.mark.parametrize("names", [{}, {"x": "image", "y": "label"}])
def test_a_device_map_trains_like_arrays(arrays, names, weights):
    x, y = arrays[0], arrays[1] % 2
    expected, model = make_model(), make_model()
    expected.fit(2 * x, y, batch_size=BATCH, shuffle=False, epochs=2, class_weight=weights, verbose=0)
    give = (lambda x, y: {"label": y, "image": 2 * x}) if names else (lambda x, y: (2 * x, y))
    with mapped_on_device((x, y), give, **names) as feed:
        model.fit(feed, epochs=2, class_weight=weights, verbose=0)
    for found, expected_weight in zip(weights_of(model), weights_of(expected), strict=True):
        np.testing.assert_allclose(found, expected_weight, rtol=1e-4, atol=1e-6)


def test_fields_missing_from_a_device_map_are_refused_at_the_first_batch(arrays):
    feed = mapped_on_device(arrays, lambda x, y: {"image": x, "label": y}, x="picture")
    with feed, pytest.raises(PipelineError, match="no field 'picture'"):
        make_model().predict(feed, verbose=0)


def test_class_weights_with_sample_weights_of_a_device_map_are_refused(arrays):
    with mapped_on_device(arrays, lambda x, y: (x, y, y)) as feed, pytest.raises(PipelineError, match="class_weight"):
        make_model().fit(feed, class_weight={0: 2.0}, verbose=0)


@only_for["tensorflow"]
def test_a_device_map_under_a_strategy_is_refused(arrays):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model()
    with mapped_on_device(arrays, lambda x, y: (x, y)) as feed, pytest.raises(FeedError, match="where='device'"):
        model.fit(feed, verbose=0)


# Arguments that Keras would ignore


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


def test_fit_refuses_a_validation_split(pipeline):
    with pytest.raises(ValueError, match="validation_split"):
        make_model().fit(pipeline.feed("keras"), validation_split=0.5, verbose=0)


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


# Epochs


def test_validation_sees_all_rows_after_each_epoch(arrays, pipeline):
    model = make_model(optimizer=keras.optimizers.SGD(0.0))
    expected = model.evaluate(*arrays, batch_size=BATCH, verbose=0)
    validation = fb.from_arrays(arrays).shuffle(seed=1).batch(BATCH).feed("keras")
    history = model.fit(pipeline.feed("keras"), validation_data=validation, epochs=3, verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [expected] * 3, rtol=1e-5)


def test_validation_steps_take_the_first_batches(arrays, pipeline):
    model = make_model(optimizer=keras.optimizers.SGD(0.0))
    expected = model.evaluate(*(array[: 2 * BATCH] for array in arrays), batch_size=BATCH, verbose=0)
    validation = pipeline.feed("keras")
    history = model.fit(pipeline.feed("keras"), validation_data=validation, validation_steps=2, epochs=3, verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [expected] * 3, rtol=1e-5)


def test_with_steps_per_epoch_each_epoch_continues_where_the_last_one_ended(pipeline):
    model, seen = make_recording_model()
    model.fit(pipeline.repeat().feed("keras"), steps_per_epoch=3, epochs=3, verbose=0)
    expected = [*range(0, ROWS, BATCH)] * 2
    assert [batch[0] for batch in seen.batches] == expected[:9]


@not_torch
def test_several_steps_in_an_execution_see_every_row_once(arrays, pipeline):
    fed, plain = make_model(steps_per_execution=3), make_model()  # the second execution requests a sixth batch
    plain.fit(*arrays, batch_size=BATCH, shuffle=False, epochs=3, verbose=0)
    fed.fit(pipeline.feed("keras"), epochs=3, verbose=0)
    for got, expected in zip(weights_of(fed), weights_of(plain), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        fed.predict(pipeline.feed("keras"), verbose=0), fed.predict(arrays[0], verbose=0), rtol=1e-4, atol=1e-5
    )


@not_torch
@pytest.mark.parametrize("steps", [1, 2])
def test_later_epochs_and_calls_are_not_traced_again(pipeline, steps):
    model = make_model(CountsTraces, steps_per_execution=steps)
    feed = pipeline.feed("keras")
    model.fit(feed, epochs=1, verbose=0)
    traces = model.traces
    model.fit(feed, epochs=3, verbose=0)
    assert model.traces == traces


def test_the_progress_bar_knows_how_many_batches_there_are(pipeline):
    totals = []
    hook = Hook(on_train_begin=lambda logs=None: totals.append(hook.params["steps"]))
    make_model().fit(pipeline.feed("keras"), callbacks=[hook], verbose=0)
    assert totals == [5]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras warns whenever data of unknown length ends
def test_fit_uses_a_stream_of_unknown_length_to_its_end():
    def rows():
        for row in range(ROWS):
            yield np.zeros(4, "float32"), np.full(1, row, "float32")

    model, seen = make_recording_model()
    feed = fb.from_generator(rows).batch(BATCH).feed("keras")
    assert feed.num_batches is None
    model.fit(feed, epochs=2, verbose=0)
    assert seen.rows == list(range(ROWS)) * 2


def test_every_epoch_of_a_fit_is_measured(pipeline):
    feed = pipeline.feed("keras")
    make_model().fit(feed, epochs=3, verbose=0)
    assert feed.stats()["epochs"] == 3
    assert "over 3 epochs" in feed.explain()


def test_a_fit_from_batches_of_known_number_resumes_after_an_epoch(arrays):
    x, y = arrays
    loader = fb.from_batches([(x[:40], y[:40]), (x[40:], y[40:])])
    first, second = loader.feed("keras"), loader.feed("keras")
    make_model().fit(first, epochs=2, verbose=0)
    assert first.stats()["epochs"] == 2
    second.load_state_dict(first.state_dict())
    model, seen = make_recording_model()
    model.fit(second, verbose=0)
    assert seen.rows == list(range(ROWS))


def test_an_epoch_set_after_the_last_batch_of_a_fit_is_kept(pipeline):
    feed = pipeline.feed("keras")
    move = Hook(on_train_batch_end=lambda step, logs=None: feed.set_epoch(7) if step == 4 else None)
    make_model().fit(feed, callbacks=[move], verbose=0)
    assert feed.state_dict()["epoch"] == 7


def test_after_a_stop_inside_an_epoch_the_next_call_uses_the_next_epoch(pipeline):
    model, seen = make_recording_model()
    feed = pipeline.feed("keras")
    stop = Hook(on_train_batch_end=lambda step, logs=None: setattr(model, "stop_training", True))
    model.fit(feed, callbacks=[stop], verbose=0)
    model.fit(feed, verbose=0)
    assert seen.rows == [*range(BATCH), *range(ROWS)]
    assert feed.state_dict()["epoch"] >= 1


def test_another_use_of_the_feed_inside_an_epoch_is_refused(pipeline):
    model, other = make_model(), make_model()
    feed = pipeline.feed("keras")
    evaluate = Hook(on_train_batch_end=lambda step, logs=None: other.evaluate(feed, verbose=0))
    with pytest.raises(FeedError, match="second feed"):
        model.fit(feed, callbacks=[evaluate], verbose=0)


# State


def states_of(feed, model, epochs):
    """Return the states after each batch and each epoch of a fit."""
    batch_states, epoch_states = [], []
    hook = Hook(
        on_train_batch_end=lambda step, logs=None: batch_states.append(feed.state_dict()),
        on_epoch_end=lambda epoch, logs=None: epoch_states.append(feed.state_dict()),
    )
    model.fit(feed, epochs=epochs, callbacks=[hook], verbose=0)
    return batch_states, epoch_states


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
def test_the_state_counts_finished_steps_of_an_execution(pipeline):
    states, _ = states_of(pipeline.feed("keras"), make_model(steps_per_execution=2), epochs=1)
    assert [state["position"] for state in states[:2]] == [2 * BATCH, 4 * BATCH]


@only_for["jax"]
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("on_device", [True, False])
def test_jax_prefetches_only_host_batches(arrays, monkeypatch, built, on_device):
    import jax
    from keras.src.backend.jax import trainer

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # Keras prefetches only on accelerators
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


@only_for["jax"]
@pytest.mark.parametrize("on_device", [True, False])
def test_a_fit_resumed_after_an_error_sees_the_batch_that_jax_prefetched(arrays, monkeypatch, on_device):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
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


@only_for["jax"]
def test_a_keras_distribution_accepts_batches_on_the_device(arrays):
    from keras.distribution import DataParallel, set_distribution

    expected = make_model()
    expected.fit(*arrays, batch_size=BATCH, shuffle=False, verbose=0)
    set_distribution(DataParallel(devices=["cpu:0"], auto_shard_dataset=False))
    try:
        model = make_model()
        with staged_feed(arrays) as feed:
            model.fit(feed, verbose=0)
    finally:
        set_distribution(None)
    for found, expected_weight in zip(weights_of(model), weights_of(expected), strict=True):
        np.testing.assert_allclose(found, expected_weight, rtol=1e-4, atol=1e-6)


# Errors, closing and lifetime


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # inside an execution, an error ends the data first
@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=not_torch)])
def test_an_error_in_a_map_keeps_its_type(arrays, steps):
    def fail_late(batch):
        if batch[1][0, 0] >= 2 * BATCH:
            raise KeyError("no such row")
        return batch

    feed = fb.from_arrays(arrays).batch(BATCH).map(fail_late).feed("keras")
    with pytest.raises(KeyError, match="no such row"):
        make_model(steps_per_execution=steps).fit(feed, verbose=0)


def test_a_closed_feed_is_refused(pipeline):
    with pipeline.feed("keras") as feed:
        make_model().fit(feed, verbose=0)
    with pytest.raises(FeedClosedError):
        make_model().fit(feed, verbose=0)


@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=not_torch)])
def test_the_model_does_not_keep_a_feed_alive(pipeline, steps):
    model = make_model(steps_per_execution=steps)
    feed = pipeline.feed("keras")
    model.fit(feed, verbose=0)
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None


def test_a_feed_can_be_iterated_in_a_loop(arrays, pipeline):
    batches = list(pipeline.feed("keras"))
    assert [len(batch) for batch in batches] == [2] * 5
    np.testing.assert_array_equal(np.concatenate([np.asarray(x) for x, _ in batches]), arrays[0])


# Cases for TensorFlow only


@only_for["tensorflow"]
def test_a_mirrored_strategy_splits_batches_over_its_devices(arrays, pipeline):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model(optimizer=keras.optimizers.SGD(0.0))
    expected = make_model().evaluate(*arrays, batch_size=BATCH, verbose=0)
    history = model.fit(pipeline.feed("keras"), epochs=2, validation_data=pipeline.feed("keras"), verbose=0)
    np.testing.assert_allclose(history.history["loss"] + history.history["val_loss"], [expected] * 4, rtol=1e-4)


@only_for["tensorflow"]
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_under_a_strategy_an_error_keeps_its_type(arrays):
    def fail(batch):
        raise KeyError("no such row")

    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = make_model()
    with pytest.raises(KeyError, match="no such row"):
        model.fit(fb.from_arrays(arrays).batch(BATCH).map(fail).feed("keras"), verbose=0)


@only_for["tensorflow"]
def test_under_a_strategy_the_state_is_known_only_between_epochs(pipeline):
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = make_model()
    feed, states = pipeline.feed("keras"), []
    model.fit(
        feed,
        epochs=2,
        callbacks=[Hook(on_epoch_end=lambda epoch, logs=None: states.append(feed.state_dict()))],
        verbose=0,
    )
    assert [(state["epoch"], state["position"]) for state in states] in ([(0, ROWS), (1, ROWS)], [(1, 0), (2, 0)])
    with pytest.raises(FeedError, match="between epochs"):
        model.fit(feed, callbacks=[Hook(on_train_batch_end=lambda step, logs=None: feed.state_dict())], verbose=0)


@only_for["tensorflow"]
def test_a_feed_inside_a_tf_function_is_refused(pipeline):
    dataset = pipeline.feed("keras").get_tf_dataset()
    with pytest.raises(FeedError, match=r"inside a tf\.function"):
        tf.function(lambda: next(iter(dataset)), autograph=False)()


@only_for["tensorflow"]
def test_the_model_gets_the_memory_of_the_feed_without_a_copy(pipeline):
    given, used = [], []

    class Spy(keras.Sequential):
        def train_step(self, data):
            used.append(address_of(data[0]))
            return super().train_step(data)

    feed = pipeline.feed("keras")
    take = feed._epochs.take

    def spy(*arguments, **options):
        batch = take(*arguments, **options)
        given.append(address_of(batch[0]))
        return batch

    feed._epochs.take = spy
    make_model(Spy, run_eagerly=True).fit(feed, verbose=0)
    assert used == given
