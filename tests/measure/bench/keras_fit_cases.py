"""The meter for `fit` of Keras, on the CPU.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import keras
import pytest

from forebay.measure.bench.contenders.gpu.keras import arrays, repeated_batch, tf_data
from forebay.measure.bench.meters import RunSettings, keras_fit
from forebay.measure.bench.model import Workload

WORK = Workload(64, (12, 12, 3), 16, options={"backend": keras.backend.backend()})
SETTINGS = RunSettings(seconds=0.02, warm_up_seconds=0.01, repeats=1)


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch):
    monkeypatch.setattr(keras_fit, "require_gpu", lambda framework: None)


@pytest.mark.parametrize("contender", [repeated_batch, arrays])
def test_a_step_of_fit_is_timed(contender):
    sampler = keras_fit.prepare(contender, WORK, SETTINGS)
    sampler.warm_up()
    assert 0 < sampler.sample()["step"] < 10_000


def test_the_baseline_repeats_one_batch_for_the_batches_of_an_epoch():
    adapter = repeated_batch(WORK)()
    batches = iter(adapter)
    assert adapter.num_batches == 4
    assert next(batches) is next(batches)


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # a default of fit that datasets ignore
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.data needs the tensorflow backend")
def test_tf_data_is_timed():
    sampler = keras_fit.prepare(tf_data, WORK, SETTINGS)
    sampler.warm_up()
    assert 0 < sampler.sample()["step"] < 10_000
