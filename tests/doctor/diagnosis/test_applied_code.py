"""The code of a cure in a copy of the script.

Line numbers still find the same statements, and the loop is timed without hooks.
"""

import ast
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.capture.profiled_run import RunRequest
from forebay.doctor.diagnosis import verify
from forebay.doctor.diagnosis.applied_code import DOES_NOT_FIT, apply_code, time_loop
from forebay.doctor.diagnosis.subprocess_run import TimedRun, time_in_subprocess
from forebay.doctor.model.emulation import Emulation, EmulationKind

SLOW = """import sys
import time

def work(step):
    time.sleep(0.001)

for step in range(20_000):
    work(step)
print(len(sys.argv))
"""
FASTER = "# before line 4:\nimport math\n# instead of line 8:\nmath.sqrt(step)"


@given(st.integers(3, 30), st.data())
def test_a_line_that_no_change_replaces_keeps_its_text(count, data):
    lines = [f"line{number} = {number}" for number in range(1, count + 1)]
    numbers = sorted(data.draw(st.sets(st.integers(1, count), max_size=4)))
    parts, replaced = [], set()
    for number in numbers:
        place = data.draw(st.sampled_from(["before", "instead of", "remove"]))
        replaced |= {number} if place != "before" else set()
        new = [f"new{number}_{index} = 0" for index in range(data.draw(st.integers(1, 3)) if place != "remove" else 0)]
        parts += [f"# {place} line {number}{'' if place == 'remove' else ':'}", *new]
    applied = apply_code("\n".join(lines), "\n".join(parts))
    for number in range(1, count + 1):
        if number not in replaced:
            assert applied.source.split("\n")[applied.line_of(number) - 1] == lines[number - 1]


def test_the_line_of_a_replaced_loop_header_is_that_of_the_new_header():
    applied = apply_code("for a in rows:\n    use(a)", "# instead of line 1:\nfeed = make()\nfor a in feed:")
    assert applied.line_of(1) == 2
    assert applied.source.split("\n")[applied.line_of(1) - 1] == "for a in feed:"


@pytest.mark.parametrize(
    ("source", "line", "timed"),
    [
        ("for a in rows:\n    use(a)\n", 2, "    {mark}; use(a)"),
        ("for a in rows:\n    use(a)\n", 1, "    {mark}; use(a)"),
        ("while rows:\n    if a:\n        use(a)\n", 3, "    {mark}\n    if a:"),
        ("def step(a):\n    use(a)\nfor a in rows:\n    step(a)\n", 2, "    {mark}; step(a)"),
        ("é = 'ü'; model.fit(x)\n", 1, "é = 'ü'; {timer}.timed_fit(model.fit)(x)"),
    ],
)
def test_each_iteration_of_the_loop_is_timed(source, line, timed):
    timer = '__import__("forebay.doctor.emulate.step_timer", fromlist=["mark"])'
    text = time_loop(source, line)
    ast.parse(text)
    assert timed.format(timer=timer, mark=f"{timer}.mark()") in text


@pytest.mark.parametrize("source", ["step(a)\n", "def step(a):\n    use(a)\n"])
def test_a_step_without_a_loop_has_an_error(source):
    with pytest.raises(ValueError, match="no loop around its step"):
        time_loop(source, 1)


def timed(tmp_path, source, code, *arguments):
    (tmp_path / "train.py").write_text(source)
    run = RunRequest(str(tmp_path / "train.py"), arguments)
    emulation = Emulation(EmulationKind.APPLIED, run.script, 8, code=code)
    result = time_in_subprocess(run, emulation, seconds=100)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == source
    return result


@pytest.mark.slow
def test_the_loop_with_the_cure_is_timed_and_the_script_stays_as_it_is(tmp_path):
    result = timed(tmp_path, SLOW, FASTER, "--epochs", "3")
    assert result.ended == "done"
    assert 0 < result.step_seconds < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("# instead of line 8:\nraise ValueError(step)", "ValueError: 0"),
        ("# instead of line 8:\nif step > 5: break", "done"),
        ("# instead of line 8:\nwork(", f"{DOES_NOT_FIT}: "),
        ("# remove line 7\n# remove line 8", f"{DOES_NOT_FIT}: "),
        ("# instead of line 99:\npass", f"{DOES_NOT_FIT}: "),
    ],
)
def test_a_cure_that_fails_says_how_the_script_ended(tmp_path, code, ended):
    result = timed(tmp_path, SLOW, code)
    assert result.step_seconds is None
    assert result.ended.startswith(ended)


@pytest.mark.parametrize(
    ("ended", "trouble"),
    [
        (f"{DOES_NOT_FIT}: the script has no line 99", f"{DOES_NOT_FIT}: the script has no line 99"),
        ("done", "with the cure, the script made too few steps: done"),
    ],
)
def test_the_report_says_whether_the_code_did_not_fit_or_steps_were_missing(monkeypatch, tmp_path, ended, trouble):
    script = tmp_path / "train.py"
    script.write_text(SLOW)
    monkeypatch.setattr(verify, "time_in_subprocess", lambda *arguments, seconds: TimedRun(None, ended))
    view = SimpleNamespace(capture=SimpleNamespace(seconds=1.0))
    emulation = Emulation(EmulationKind.APPLIED, str(script), 8, code=FASTER)
    verification = verify._time_applied(view, RunRequest(str(script), ()), None, emulation, lambda kind: None)
    assert verification.trouble == trouble
