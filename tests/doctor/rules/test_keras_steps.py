"""Short steps of Keras: a capture of an H200, in which `fit` trains three dense layers on arrays.

The step time of each variant of the script was measured in the same run, without the doctor.
"""

from dataclasses import replace
from functools import cache

import pytest
from tests.doctor.captures import batch, fitted, run
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
    assert "   # 50 steps per call: callbacks and logs run once per call\n" in code
    assert "fb.from_arrays((x, y))" in code
    assert ".batch(64)" in code


@pytest.mark.parametrize("facts", [{"keras_backend": "jax"}, {"keras_backend": "torch"}])
def test_other_backends_have_no_such_finding(facts):
    capture = diagnosis().view.capture
    found = diagnose(replace(capture, facts=capture.facts | facts)).findings
    assert "keras_steps" not in [finding.rule for finding in found]


# Milliseconds on two cores with batches of 64 rows: the step and its compiled call as written, and the step with 50
# steps per call, for two dense layers, four dense layers, and two convolutions.
@pytest.mark.parametrize(
    ("step", "call", "grouped"), [(2.231, 1.649, 1.068), (2.635, 1.947, 1.487), (7.849, 7.318, 5.074)]
)
def test_on_the_cpu_a_part_of_the_compiled_call_is_saved_too(step, call, grouped):
    taken = batch("keras arrays", 0.02, line=21, loader="arrays", batch_rows=64)
    capture = fitted(run(ms=call, line=21).containing(taken), ms=step)
    (finding,) = diagnose(capture).findings
    assert (finding.rule, finding.best_cure.title) == ("keras_steps", "make 50 steps per call")
    predicted = [step - 1e3 * finding.best_cure.high, step - 1e3 * finding.best_cure.low]
    assert predicted[0] <= grouped <= predicted[1] * 1.01
    assert step / predicted[1] > 1.15
    assert predicted[1] / predicted[0] < 1.5


def test_on_the_cpu_the_time_of_the_compiled_function_does_not_include_waits_for_input():
    taken = batch("keras arrays", 0.5, line=21, loader="arrays", batch_rows=64)
    findings = diagnose(fitted(run(ms=1.0, line=21), taken, ms=2.0)).findings
    finding = next(finding for finding in findings if finding.rule == "keras_steps")
    assert finding.evidence[0].startswith("The compiled function takes 1.00 ms of 2.00 ms.")
