"""Lines with the same cause and the same cure are one finding, with the gain of all of them."""

import pytest
from tests.doctor.captures import TENSORFLOW, build, loop, run, sampled

from forebay.doctor.diagnosis.diagnose import diagnose


def test_lines_that_draw_one_figure_are_one_finding():
    drawing = (14, "matplotlib.pyplot.plot", 2), (15, "matplotlib.pyplot.pause", 3)
    diagnosis = diagnose(sampled(loop(run(ms=5)), *drawing))
    (found,) = [finding for finding in diagnosis.findings if finding.rule == "host"]
    assert found.line.number == 15
    assert found.seconds == pytest.approx(diagnosis.view.step_seconds / 2, rel=0.15)
    assert any(sentence.startswith("Other lines: train.py:14 (") for sentence in found.evidence)
    assert "train(" not in found.cures[0].code  # the function that contains the loop


def test_lines_that_take_little_time_are_left_out():
    drawing = (14, "matplotlib.pyplot.plot", 0.02), (15, "matplotlib.pyplot.pause", 3)
    (found,) = [finding for finding in diagnose(sampled(loop(run(ms=5)), *drawing)).findings if finding.rule == "host"]
    assert not any(sentence.startswith("Other lines") for sentence in found.evidence)


def test_all_pipelines_that_keras_builds_in_a_step_are_one_finding():
    predict = build("Model.predict", 2, line=18, what="iterator")
    fit = build("Model.fit", 3, line=19, what="iterator", fit=lambda number: number)
    diagnosis = diagnose(loop(predict, fit, run(ms=5), frameworks=TENSORFLOW))
    (found,) = [finding for finding in diagnosis.findings if finding.rule == "rebuilt"]
    assert found.title == "Every call of Model.fit or Model.predict in the loop builds a new pipeline"
    assert found.line.number == 19
    assert found.seconds == pytest.approx(5e-3, rel=0.05)
