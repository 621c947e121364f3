"""Lines with the same cause and the same cure are one finding, with the gain of all of them."""

import pytest
from tests.doctor.captures import TENSORFLOW, build, loop, run, sampled, torch_loop
from tests.doctor.histories import growing, monitored

from forebay.doctor.diagnosis.diagnose import diagnose


def test_lines_that_draw_one_figure_are_one_finding():
    drawing = (14, "matplotlib.pyplot.plot", 2), (15, "matplotlib.pyplot.pause", 3)
    diagnosis = diagnose(sampled(loop(run(ms=5)), *drawing))
    (found,) = [finding for finding in diagnosis.findings if finding.rule == "host"]
    assert found.line.number == 15
    assert found.seconds == pytest.approx(diagnosis.view.step_seconds / 2, rel=0.15)
    assert any(sentence.startswith("Other lines: train.py:14 (") for sentence in found.evidence)
    assert "train(" not in found.cures[0].code  # the function that contains the loop


def test_the_code_of_a_cure_has_all_lines_whose_time_it_saves():
    saving = [(line, "torch.serialization.save", 1) for line in range(10, 16)]
    (found,) = diagnose(sampled(loop(run(ms=4)), *saving)).findings
    (cure,) = found.cures
    assert [f"    statement_{line}()" for line in range(10, 16)] == sorted(cure.code.split("\n")[3:-1])
    assert cure.high == pytest.approx(found.seconds, rel=0.01)


def test_the_gain_of_a_cure_is_that_of_the_lines_in_its_code():
    saving = [(line, "torch.serialization.save", 1 + line / 100) for line in range(8)]
    (found,) = diagnose(sampled(loop(run(ms=2)), *saving)).findings
    (cure,) = found.cures
    assert [f"    statement_{line}()" for line in range(7, 1, -1)] == cure.code.split("\n")[3:-1]
    assert cure.high == pytest.approx(found.seconds * 6.27 / 8.28, rel=0.03)
    assert found.evidence[-1] == (
        "The code and the gain do not include train.py:1, train.py:0. Change these lines too."
    )


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


def test_growth_that_takes_most_of_the_run_comes_before_a_cost_of_the_first_steps():
    """A first step of 10 ms waits 8.5 ms. The mean step takes 46 ms, because of the growth."""
    steps = sampled(torch_loop(ms=10, untraced=(0.01,) * 60), (14, "time.sleep", 8.5), (15, "", 1.5))
    findings = diagnose(monitored(steps, growing(800, 5, 78))).findings
    assert [finding.rule for finding in findings] == ["drift", "host"]
    assert "ms to 83.0 ms, because one line grows" in findings[0].title


def test_the_cure_of_growth_gives_each_step_the_time_of_the_first_steps():
    """Steps grow from 10 to 60 ms, so the mean step takes 35 ms."""
    diagnosis = diagnose(monitored(torch_loop(ms=10, untraced=(0.01,) * 60), growing(800, 5, 55)))
    (found,) = diagnosis.findings
    assert found.seconds / diagnosis.view.step_seconds == pytest.approx(25 / 35, rel=0.05)
    assert found.gain == pytest.approx(found.seconds, rel=0.15)
    assert found.evidence[0].startswith("The line that grows: train.py:2 takes ")
    assert "At the end of the run, it takes 5" in found.evidence[1]
    assert "and it goes on: at this rate, a step takes 62" in found.evidence[1]
