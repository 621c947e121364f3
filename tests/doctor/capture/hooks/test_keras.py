"""The events that the Keras hooks record for each script, with TensorFlow as the backend."""

import pytest
from tests.support.framework_processes import Captures
from tests.support.paths import DOCTOR

from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import EventKind

INPUT_STEPS = StepDetector().input_steps

SCRIPTS = sorted(path.stem for path in (DOCTOR / "scripts" / "keras").glob("*.py"))


@pytest.fixture
def captures(framework_processes):
    return Captures(framework_processes, "keras")


def events(capture, kind, api=None, line=""):
    return [
        event
        for event in capture.events
        if event.kind == kind and api in (None, event.api) and capture.lines[event.line].text.startswith(line)
    ]


def steps(capture):
    """Return the steps that end inside the profiled window."""
    return [event for event in events(capture, EventKind.STEP) if event.end <= capture.window.end]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_normally_without_notes(captures, script):
    capture = captures[script]
    assert capture.ended == "done"
    assert [note for note in capture.notes if "JAX" not in note] == []
    assert len(steps(capture)) >= 8


@pytest.mark.parametrize(
    ("script", "api", "loader"),
    [
        ("fit_arrays", "keras arrays", "arrays"),
        ("fit_tf_data", "tf.data", "tf.data"),
        ("input_bound", "tf.data", "generator"),
        ("input_bound_generator", "tf.data", "generator"),
    ],
)
def test_a_fit_records_its_input_waits_inside_its_runs(captures, script, api, loader):
    capture = captures[script]
    waits = events(capture, EventKind.INPUT, api, line="model.fit(")
    assert len(waits) >= len(steps(capture)) - 10
    assert {event.detail["loader"] for event in waits} == {loader}
    runs = [(event.start, event.end) for event in events(capture, EventKind.RUN)]
    assert all(any(start <= wait.start <= wait.end <= end for start, end in runs) for wait in waits)


def test_only_steps_are_timed_after_the_window(captures):
    capture = captures["fit_arrays"]
    assert capture.window.anchor[:2] == ("step", "Model.fit")
    assert len(capture.window.untraced) >= 50
    later_runs = [event for event in events(capture, EventKind.RUN) if event.start > capture.window.end]
    assert len(later_runs) <= INPUT_STEPS + 1  # the steps whose input is traced, and the call that stops the hooks


def test_a_pipeline_records_its_settings(captures):
    (built,) = events(captures["fit_tf_data"], EventKind.BUILD, "Dataset.from_tensor_slices")
    assert built.detail == {"what": "Dataset", "shuffle_rows": 500, "batch_rows": 32, "prefetch": -1}
    assert built.nbytes == 2000 * 33 * 4
    assert {event.detail["batch_rows"] for event in events(captures["fit_arrays"], EventKind.INPUT)} == {32}


def test_user_code_on_other_threads_is_recorded(captures):
    capture = captures["input_bound"]
    made = events(capture, EventKind.PREPARE, "PyDataset.__getitem__", line="def __getitem__(self, index):")
    assert len(made) >= 60
    assert len({event.thread for event in made} - {event.thread for event in steps(capture)}) >= 1
    assert len(events(captures["input_bound_generator"], EventKind.PREPARE, "generator", line="def batches():")) >= 60
    assert events(captures["input_bound_healthy"], EventKind.PREPARE) == []


def test_the_same_arrays_have_the_same_keys(captures):
    again = events(
        captures["repeated_upload"], EventKind.UPLOAD, "Model.train_on_batch", line="model.train_on_batch(x, y)"
    )
    assert (len(again), len({event.detail["key"] for event in again})) == (120, 2)
    assert events(captures["repeated_upload_healthy"], EventKind.UPLOAD, line="model.train_on_batch(x, y)") == []


def test_operations_of_an_eager_model_are_counted(captures):
    eager, compiled = (
        sum(event.detail["count"] for event in events(captures[name], EventKind.OPS, line="model.fit("))
        for name in ("settings", "settings_healthy")
    )
    assert eager > 30 * 50
    assert compiled < 30 * 10


def test_a_model_that_is_compiled_again_is_traced_again(captures):
    assert len(events(captures["rebuilt"], EventKind.BUILD, "Model.compile")) == 8
    assert len(events(captures["rebuilt"], EventKind.COMPILE, "Model.fit")) == 8
    assert len(events(captures["rebuilt_healthy"], EventKind.COMPILE, "Model.fit")) == 1
