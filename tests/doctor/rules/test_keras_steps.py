"""Short steps of Keras: a capture of an H200, in which `fit` trains three dense layers on arrays.

The step time of each variant of the script was measured in the same run, without the doctor.
"""

from dataclasses import replace
from functools import cache

import pytest
from tests.support.paths import DOCTOR

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture

MEASURED_MS = {"make 50 steps per call, on a feed": 0.405, "make 50 steps per call": 0.776, "use a feed": 0.793}
PLAIN_MS = 1.549  # of the script as written
MAX_ERROR = 0.25  # share of the measured step time


@cache
def diagnosis():
    return diagnose(Capture.load(DOCTOR / "rules" / "keras_fit_arrays.gz"))


def test_the_steps_of_keras_are_the_main_finding():
    assert diagnosis().main.rule == "keras_steps"
    assert diagnosis().main.line.text.startswith("model.fit(x, y, batch_size=64")


@pytest.mark.parametrize("title", MEASURED_MS)
def test_a_prediction_is_close_to_the_measured_speedup(title):
    cure = next(cure for cure in diagnosis().main.cures if cure.title == title)
    step = diagnosis().view.step_seconds
    predicted = (step - cure.gain) / step
    assert predicted == pytest.approx(MEASURED_MS[title] / PLAIN_MS, rel=MAX_ERROR)


def test_the_cure_names_the_arrays_and_the_batch_size_of_the_script():
    code = diagnosis().main.best_cure.code
    assert "steps_per_execution=50" in code
    assert "fb.from_arrays((x, y))" in code
    assert ".batch(64)" in code


@pytest.mark.parametrize("facts", [{"keras_backend": "jax"}, {"keras_backend": "torch"}])
def test_other_backends_have_no_such_finding(facts):
    capture = diagnosis().view.capture
    found = diagnose(replace(capture, facts=capture.facts | facts)).findings
    assert "keras_steps" not in [finding.rule for finding in found]
