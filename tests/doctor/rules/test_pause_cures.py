"""Findings about rare long steps: their evidence, and the code that saves in a background thread."""

from dataclasses import replace

import pytest
from tests.doctor.captures import TORCH, loop, tensorflow_loop
from tests.doctor.histories import FRAMES, calling, monitored, usual, with_pauses

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.step_history import StackFrame
from forebay.doctor.rules.pauses import examine


def background_code(function, text):
    """Return the first cure of a loop whose line `text` saves with a function of a library in every 20th step."""
    capture = monitored(tensorflow_loop(), with_pauses(400, 20, 200, frame=4), frames=calling(function))
    lines = tuple(line._replace(text=text) for line in capture.lines)
    (finding,) = examine(CaptureView(replace(capture, lines=lines)))
    assert finding.cures[0].title == "save in a background thread"
    return finding.cures[0].code


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("self.model.save(path)", "self.model"),
        ("net.save_weights('a.weights.h5')", "net"),
        ("net.fit(x, y, callbacks=[checkpoints])", "net"),
        ("save_all()", "model"),
    ],
)
def test_a_keras_model_is_copied_and_written_without_a_tensorflow_checkpoint(text, model):
    """On Keras 3, each asynchronous checkpoint keeps a thread, and a second write of the same checkpoint fails."""
    code = background_code("keras.src.models.model.Model.save", text)
    assert f"variables = {model}.variables + {model}.optimizer.variables" in code
    assert "tf.train" not in code
    assert "variable.assign(value)" in code


def test_tensorflow_writes_all_files_with_one_checkpoint():
    code = background_code("tensorflow.python.checkpoint.checkpoint.Checkpoint.write", "saved.write(path)")
    assert "checkpoint = tf.train.Checkpoint(model=model)   # before the loop" in code
    assert code.count("tf.train.Checkpoint(") == 1
    assert "checkpoint.write(path, options=options)   # instead of saved.write(path)" in code


def finding_of(frames, first_ms, second_ms):
    """Return the finding for steps of which every 30th also executes the frames 4 and 6."""
    long_step = [(4, first_ms), (6, second_ms), *usual()]
    series = [long_step if step % 30 == 29 else usual() for step in range(600)]
    (finding,) = examine(CaptureView(monitored(loop(frameworks=TORCH, untraced=(0.01,) * 5), series, frames=frames)))
    return finding


@pytest.mark.parametrize(("ms", "line", "inner", "other"), [((60, 30), 3, 4, 5), ((30, 60), 5, 6, 3)])
def test_the_evidence_names_where_the_line_of_the_finding_spends_its_time(ms, line, inner, other):
    """Line 3 calls line 4, and line 5 calls line 6."""
    finding = finding_of((*FRAMES[:5], StackFrame(0, 5), StackFrame(5, 6)), *ms)
    assert finding.line.number == line
    assert finding.evidence[1:] == (
        f"This line spends most of its time in train.py:{inner}.",
        f"These steps also execute train.py:{other}. Usual steps do not.",
    )


def test_the_evidence_does_not_say_where_a_shorter_line_spends_its_time():
    """Line 3 calls a library. Line 5 takes less time and calls line 6."""
    finding = finding_of((*calling("torch.serialization.save"), StackFrame(0, 5), StackFrame(5, 6)), 60, 30)
    assert finding.line.number == 3
    assert finding.evidence[1:] == ("These steps also execute train.py:5. Usual steps do not.",)


@pytest.mark.parametrize(
    ("uses_mean", "sentence"), [(False, "is a median, so it does not include"), (True, "is a mean, so it includes")]
)
def test_the_evidence_says_whether_the_step_time_contains_the_pauses(uses_mean, sentence, monkeypatch):
    """The step time is a mean if the input comes in bursts."""
    monkeypatch.setattr(CaptureView, "uses_mean", uses_mean)
    assert finding_of(FRAMES, 60, 30).evidence[0].endswith(f"The step time {sentence} their cost.")
