"""The Keras hooks change no result and record the expected events.

`test_framework_cases.py` runs this file once per backend, each in its own process, because frameworks conflict in one
process.
"""

import keras
import numpy as np
import pytest
from keras.src.callbacks.callback_list import CallbackList
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters import array_data_adapter, generator_data_adapter, py_dataset_adapter
from tests.doctor.capture.hooks.tensorflow_watched import attributes, watched

BACKEND = keras.backend.backend()
OWNERS = (  # classes whose methods the hooks replace
    keras.Model,
    CallbackList,
    BaseOptimizer,
    array_data_adapter.ArrayDataAdapter,
    generator_data_adapter.GeneratorDataAdapter,
    py_dataset_adapter.PyDatasetAdapter,
)
X = np.random.default_rng(0).normal(size=(320, 8)).astype("float32")
Y = X[:, :1].copy()

FIT_OPTIONS = {"shuffle": False, "verbose": 0}

only_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="only the TensorFlow backend does this")


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return X[index * 32 :][:32], Y[index * 32 :][:32]


class FailingCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise LookupError("not this batch")


def generated():
    while True:
        yield X[:32], Y[:32]


def new_model(**settings):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **settings)
    return model


def test_every_patched_attribute_is_restored():
    before = attributes((*OWNERS, Rows))
    with watched():
        new_model().fit(Rows(), verbose=0)
        assert [one != another for one, another in zip(before, attributes((*OWNERS, Rows)), strict=True)] == [True] * 7
    assert attributes((*OWNERS, Rows)) == before


def test_a_profiled_fit_has_the_same_losses():
    plain = new_model().fit(X, Y, epochs=2, verbose=0).history["loss"]
    with watched():
        assert new_model().fit(X, Y, epochs=2, verbose=0).history["loss"] == plain


@pytest.mark.parametrize(
    ("data", "loader"),
    [
        (lambda: {"x": X, "y": Y}, "arrays"),
        (lambda: {"x": Rows()}, "generator"),
        (lambda: {"x": generated()}, "generator"),
    ],
)
def test_a_fit_records_each_step_and_its_input_waits(data, loader):
    with watched() as seen:
        new_model().fit(**data(), steps_per_epoch=10, **FIT_OPTIONS)
    assert [event.api for event in seen.of("step")] == ["Model.fit"] * 10
    assert seen.lines("step") == seen.lines("input") == {"new_model().fit(**data(), steps_per_epoch=10, **FIT_OPTIONS)"}
    assert set(seen.detail("input", "loader")) == {"DataLoader" if BACKEND == "torch" else loader}
    # With TensorFlow, some waits are neither traced nor estimated.
    assert len(seen.of("input")) >= (3 if BACKEND == "tensorflow" else 10)
    assert seen.notes == []


@pytest.mark.parametrize(
    ("data", "line", "what"),
    [(Rows, "def __getitem__(self, index):", "row"), (generated, "def generated():", "generator")],
)
def test_preparation_is_recorded_at_the_line_of_the_users_function(data, line, what):
    with watched() as seen:
        new_model().fit(data(), steps_per_epoch=10, **FIT_OPTIONS)
    assert line in seen.lines("prepare")
    assert len([recorded for recorded in seen.detail("prepare", "what") if recorded == what]) >= 10


def test_train_on_batch_records_one_step_per_call():
    model = new_model()
    with watched() as seen:
        for _ in range(4):
            model.train_on_batch(X, Y)
    assert [event.api for event in seen.of("step")] == ["Model.train_on_batch"] * 4


def test_two_models_trained_in_turn_record_one_step_per_turn():
    first, second = new_model(), new_model()
    with watched() as seen:
        for _ in range(4):
            first.train_on_batch(X, Y)
            second.train_on_batch(X, Y)
            second.train_on_batch(X, Y)
    assert len(seen.of("step")) == 4


def test_compile_and_the_first_fit_are_recorded():
    with watched() as seen:
        model = new_model()
        model.fit(X, Y, verbose=0)
        model.fit(X, Y, verbose=0)
    assert [event.api for event in seen.of("build") if event.detail["what"] == "Model"] == ["Model.compile"]
    assert len(seen.of("compile", "Model.fit")) == 1


def test_an_error_passes_unchanged_and_later_steps_are_recorded():
    model = new_model()
    with watched() as seen:
        with pytest.raises(LookupError, match="not this batch"):
            model.fit(X, Y, verbose=0, callbacks=[FailingCallback()])
        model.train_on_batch(X, Y)
    assert [event.api for event in seen.of("step")] == ["Model.train_on_batch"]


def test_an_error_of_a_generator_passes_unchanged():
    def broken():
        yield X, Y
        yield X, Y
        yield X, Y
        raise LookupError("no more")

    with watched(), pytest.raises(Exception, match="no more"):
        new_model().fit(broken(), **FIT_OPTIONS)


@only_tensorflow
def test_arrays_passed_to_fit_are_uploads_of_fit():
    with watched() as seen:
        new_model().fit(X, Y, verbose=0)
    assert [event.nbytes for event in seen.of("upload", "Model.fit")] == [X.nbytes, Y.nbytes]
    assert "" not in seen.detail("upload", "key")


@only_tensorflow
def test_each_iterator_records_the_number_of_its_fit():
    model = new_model()
    with watched() as seen:
        model.fit(X, Y, epochs=2, verbose=0)
        model.fit(X, Y, verbose=0)
    fits = sorted({event.detail["fit"] for event in seen.of("build", "Model.fit")})
    assert (len(fits), fits[-1] - fits[0]) == (2, 1)


@only_tensorflow
def test_train_on_batch_uploads_its_arrays_in_every_call():
    model = new_model()
    with watched() as seen:
        for _ in range(4):
            model.train_on_batch(X, Y)
    keys = [event.detail["key"] for event in seen.of("upload", "Model.train_on_batch")]
    assert (len(keys), len(set(keys))) == (8, 2)


@only_tensorflow
def test_an_execution_of_several_batches_is_one_step():
    with watched() as seen:
        new_model(steps_per_execution=5).fit(X, Y, verbose=0)
    assert len(seen.of("step")) == 2


@only_tensorflow
def test_an_eager_model_records_each_step_once():
    with watched() as seen:
        new_model(run_eagerly=True).fit(X, Y, verbose=0)
    assert [event.api for event in seen.of("step")] == ["Model.fit"] * 10
    assert sum(seen.detail("ops", "count")) > 10 * 20


def test_a_model_that_runs_eagerly_is_a_setting():
    with watched() as seen:
        new_model(run_eagerly=True).compile("sgd", "mse", run_eagerly=False)
    assert [event.api for event in seen.of("setting")] == ["Model.compile(run_eagerly=True)"]


@only_tensorflow
def test_the_optimizer_ends_the_steps_of_a_custom_loop():
    import tensorflow as tf

    weights, optimizer = keras.Variable([1.0, 2.0]), keras.optimizers.SGD()

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights.value**2)
        optimizer.apply(tape.gradient(loss, [weights.value]), [weights])

    step()
    compiled = tf.function(step)
    with watched() as seen:
        for _ in range(3):
            step()
            compiled()
    assert [event.api for event in seen.of("step")] == ["Optimizer.apply"] * 3


@only_tensorflow
def test_reads_inside_fit_are_recorded_as_fit():
    with watched() as seen:
        new_model().fit(X, Y, verbose=0)
    assert seen.apis("download") == {"Model.fit"}
    assert set(seen.detail("download", "dtype")) == {"float32"}
