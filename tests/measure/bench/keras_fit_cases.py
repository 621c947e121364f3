"""Keras's `fit` as the bench times it, on the CPU; run once for each backend, in a process of its own."""

import keras
import pytest

from forebay.measure.bench.contenders.gpu import keras_again, keras_arrays
from forebay.measure.bench.meters import Pace, keras_fit
from forebay.measure.bench.model import Work

WORK = Work(64, (12, 12, 3), 16, options={"stamped": True, "backend": keras.backend.backend()})
PACE = Pace(seconds=0.02, warm_up_seconds=0.01, repeats=1)


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch):
    monkeypatch.setattr(keras_fit, "require_gpu", lambda framework: None)


@pytest.mark.parametrize("contender", [keras_again, keras_arrays], ids=["again", "arrays"])
def test_a_step_of_fit_is_timed(contender):
    gauge = keras_fit.prepare(contender, WORK, PACE)
    gauge.warm_up()
    assert 0 < gauge.sample()["step"] < 10_000


def test_the_floor_gives_the_same_batch_as_often_as_an_epoch_has_batches():
    adapter = keras_again.epochs(WORK)()
    batches = iter(adapter)
    assert adapter.num_batches == 4
    assert next(batches) is next(batches)


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # a default of fit that datasets have no use for
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.data is TensorFlow's")
def test_tf_data_is_timed():
    from forebay.measure.bench.contenders.gpu import keras_tf_data

    gauge = keras_fit.prepare(keras_tf_data, WORK, PACE)
    gauge.warm_up()
    assert 0 < gauge.sample()["step"] < 10_000
