"""Cures of rare long steps: what a background thread writes fits the framework that saves."""

from dataclasses import replace

import pytest
from tests.doctor.captures import tensorflow_loop
from tests.doctor.histories import calling, monitored, with_pauses

from forebay.doctor.analyse.capture_view import CaptureView
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
    """On Keras 3, each asynchronous checkpoint keeps a thread, and a second write of the same one fails."""
    code = background_code("keras.src.models.model.Model.save", text)
    assert f"variables = {model}.variables + {model}.optimizer.variables" in code
    assert "tf.train" not in code
    assert "variable.assign(value)" in code


def test_tensorflow_writes_all_files_with_one_checkpoint():
    code = background_code("tensorflow.python.checkpoint.checkpoint.Checkpoint.write", "saved.write(path)")
    assert "checkpoint = tf.train.Checkpoint(model=model)   # before the loop" in code
    assert code.count("tf.train.Checkpoint(") == 1
    assert "checkpoint.write(path, options=options)   # instead of saved.write(path)" in code
