"""The doctor as a callback: what it sees of a `fit`, and that it leaves nothing behind. Run by test_keras_backends."""

import gc
import warnings

import keras
import numpy as np
import pytest
from keras.src.callbacks.callback_list import CallbackList

from forebay.doctor import KerasWatch, watch
from forebay.errors import CaptureError

X = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
Y = X[:, :1].copy()
STEPS = {"warm_up": 3, "steps": 5}


class Broken(keras.callbacks.Callback):
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


def test_the_report_is_printed_and_kept_when_fit_ends(model, capsys, tmp_path):
    seen = KerasWatch(html=tmp_path / "report.html", **STEPS)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen])
    assert "forebay doctor" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text()
    assert seen.capture.ended == "done"
    assert len(seen.verdict.case.steps) >= 4


def test_steps_end_at_the_line_of_fit_and_each_of_them_once(model):
    seen = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen])  # here
    steps = steps_in(seen.capture)
    assert len(steps) == 40
    assert {seen.capture.lines[event.line].text.endswith("# here") for event in steps} == {True}


def test_a_callback_made_in_the_call_sees_the_same(model):
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen := KerasWatch(steps=1000)])
    assert len(steps_in(seen.capture)) == 40


def test_it_ends_by_itself_after_enough_steps(model):
    seen = KerasWatch(**STEPS)
    model.fit(X, Y, batch_size=16, epochs=12, verbose=0, callbacks=[seen])
    assert seen.capture.window.anchor[:2] == ("step", "Model.fit")
    assert len(seen.capture.window.untraced) >= 60  # more, where they are so short that only some are heard of
    assert len(steps_in(seen.capture)) < 12 * 40


def test_the_line_that_makes_batches_is_known(model):
    seen = KerasWatch(steps=1000)
    model.fit(batches(), steps_per_epoch=20, shuffle=False, verbose=0, callbacks=[seen])
    made = [seen.capture.lines[event.line].text for event in seen.capture.events if event.kind == "prepare"]
    assert "def batches():" in made


def test_every_fit_with_the_same_callback_is_watched_anew(model):
    seen = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen])
    first = seen.capture
    model.fit(X, Y, batch_size=32, verbose=0, callbacks=[seen])
    assert [len(steps_in(first)), len(steps_in(seen.capture))] == [40, 20]


def test_hooks_are_gone_afterwards(model):
    before = [dict(vars(owner)) for owner in (keras.Model, CallbackList)]
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[KerasWatch()])
    assert [dict(vars(owner)) for owner in (keras.Model, CallbackList)] == before


def test_a_fit_that_fails_keeps_nobody_from_watching(model):
    left = KerasWatch()
    with pytest.raises(LookupError):
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[left, Broken()])
    seen = KerasWatch(steps=1000)
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen])
    assert len(steps_in(seen.capture)) == 40


def test_a_callback_that_nobody_keeps_ends_its_watch():
    KerasWatch()
    gc.collect()
    with watch():
        pass


def test_what_is_watched_already_is_not_watched_twice(model):
    with watch() as outer, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen = KerasWatch()
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[seen])
    assert any("something else is being watched" in str(warning.message) for warning in told)
    assert len(steps_in(outer.capture)) == 40
    with pytest.raises(CaptureError, match="nothing was watched"):
        seen.verdict  # noqa: B018
