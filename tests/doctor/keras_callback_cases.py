"""`KerasWatch` profiles a `fit` as a Keras callback and removes all its hooks.

`test_framework_cases.py` runs this file once per backend, each in its own process, because frameworks conflict in one
process.
"""

import gc
import warnings

import keras
import numpy as np
import pytest
from keras.src.callbacks.callback_list import CallbackList

from forebay.doctor import KerasWatch, watch
from forebay.doctor.capture.session import Session
from forebay.errors import CaptureError

X = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
Y = X[:, :1].copy()
STEPS = {"warm_up": 3, "steps": 5}


class FailingCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            raise LookupError("not this batch")


def batches():
    while True:
        yield X[:16], Y[:16]


@pytest.fixture
def model():
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def steps_in(capture):
    return [event for event in capture.events if event.kind == "step"]


def test_the_report_is_printed_and_saved_when_fit_ends(model, capsys, tmp_path):
    keras_watch = KerasWatch(html=tmp_path / "report.html", **STEPS)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch])
    assert "forebay doctor" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text()
    assert keras_watch.capture.ended == "done"
    assert len(keras_watch.diagnosis.view.steps) >= 4


def test_each_step_is_recorded_once_at_the_line_of_fit(model):
    keras_watch = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch])  # here
    steps = steps_in(keras_watch.capture)
    assert len(steps) == 40
    assert {keras_watch.capture.lines[event.line].text.endswith("# here") for event in steps} == {True}


def test_a_callback_that_is_created_in_the_call_of_fit_records_all_steps(model):
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch := KerasWatch(steps=1000)])
    assert len(steps_in(keras_watch.capture)) == 40


def test_profiling_ends_after_enough_steps(model):
    keras_watch = KerasWatch(**STEPS)
    model.fit(X, Y, batch_size=16, epochs=12, verbose=0, callbacks=[keras_watch])
    assert keras_watch.capture.window.anchor[:2] == ("step", "Model.fit")
    assert len(keras_watch.capture.window.untraced) >= 60  # more if the doctor times short steps in blocks
    assert len(steps_in(keras_watch.capture)) < 12 * 40


def test_the_line_of_the_generator_is_found(model):
    keras_watch = KerasWatch(steps=1000)
    model.fit(batches(), steps_per_epoch=20, shuffle=False, verbose=0, callbacks=[keras_watch])
    made = [
        keras_watch.capture.lines[event.line].text for event in keras_watch.capture.events if event.kind == "prepare"
    ]
    assert "def batches():" in made


def test_each_fit_with_the_same_callback_is_profiled_separately(model):
    keras_watch = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch])
    first = keras_watch.capture
    model.fit(X, Y, batch_size=32, verbose=0, callbacks=[keras_watch])
    assert [len(steps_in(first)), len(steps_in(keras_watch.capture))] == [40, 20]


def test_all_hooks_are_removed(model):
    before = [dict(vars(owner)) for owner in (keras.Model, CallbackList)]
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[KerasWatch()])
    assert [dict(vars(owner)) for owner in (keras.Model, CallbackList)] == before


def test_a_failed_fit_does_not_block_the_next_watch(model):
    failed_watch = KerasWatch()
    with pytest.raises(LookupError):
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[failed_watch, FailingCallback()])
    keras_watch = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch])
    assert len(steps_in(keras_watch.capture)) == 40


def test_an_unreferenced_callback_ends_its_watch():
    KerasWatch()
    gc.collect()
    with watch():
        pass


def test_a_fit_inside_another_watch_is_not_profiled_twice(model):
    with watch() as outer, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keras_watch = KerasWatch()
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras_watch])
    assert any("another watch is running" in str(warning.message) for warning in caught)
    assert len(steps_in(outer.capture)) == 40
    with pytest.raises(CaptureError, match="nothing was profiled"):
        keras_watch.diagnosis  # noqa: B018


def test_an_error_of_the_start_reaches_the_script(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no more memory")

    monkeypatch.setattr(Session, "start", refuse)
    with pytest.raises(RuntimeError, match="no more memory"):
        KerasWatch()
