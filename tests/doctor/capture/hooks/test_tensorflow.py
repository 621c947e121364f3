"""The events that the TensorFlow hooks record for each faulty script and for its healthy twin."""

import os
import subprocess
import sys

import pytest
from tests.support.framework_processes import SETTINGS, Captures
from tests.support.paths import DOCTOR

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind

SCRIPTS = sorted(path.stem for path in (DOCTOR / "scripts" / "tensorflow").glob("*.py"))
FAULTS = [script for script in SCRIPTS if f"{script}_healthy" in SCRIPTS]


@pytest.fixture
def captures(framework_processes):
    return Captures(framework_processes, "tensorflow")


def events(capture, kind, api=None, line=""):
    return [
        event
        for event in capture.events
        if event.kind == kind and api in (None, event.api) and capture.lines[event.line].text.startswith(line)
    ]


def details(recorded, name):
    return [(event.detail or {}).get(name) for event in recorded]


def test_every_fault_has_a_healthy_twin():
    assert sorted([*FAULTS, *(f"{fault}_healthy" for fault in FAULTS)]) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_normally_without_notes(captures, script):
    capture = captures[script]
    assert capture.ended == "done"
    # Debugging functions of TensorFlow replace the function that the doctor has hooked.
    expected = ("JAX", "was not restored") if script.startswith("settings") else ("JAX",)
    assert [note for note in capture.notes if not any(part in note for part in expected)] == []
    assert all(event.line >= 0 and event.start <= event.end for event in capture.events)


@pytest.mark.parametrize(
    ("script", "kind", "api", "times", "line"),
    [
        ("repeated_upload", "upload", "tf.convert_to_tensor", 60, "batch = tf.convert_to_tensor(images)"),
        ("conversion_in_loop", "upload", "tf.function", 60, "train_step(rows[chosen])"),
        ("conversion_in_loop", "run", "tf.function", 60, "train_step(rows[chosen])"),
        ("read_back", "download", "Tensor.numpy", 60, "losses.append(loss.numpy())"),
        ("read_back", "download", "bool(tensor)", 60, "if loss < 1e-3:"),
        ("read_back", "download", "format(tensor)", 60, "log.append("),
        ("retracing", "compile", "tf.function", 30, "train_step(0.1 / (step + 1))"),
        ("retracing_shape", "compile", "tf.function", 30, "encode("),
        ("rebuilt", "build", "Dataset.from_tensor_slices", 30, "dataset = tf.data.Dataset"),
        ("rebuilt", "build", "iter(dataset)", 30, "train_step(next(iter(dataset)))"),
        ("rebuilt", "input", "tf.data", 30, "train_step(next(iter(dataset)))"),
        ("rebuilt_function", "build", "tf.function", 30, "compiled = tf.function(train_step)"),
        ("rebuilt_function", "compile", "tf.function", 30, "compiled()"),
        ("rebuilt_session", "build", "tf.compat.v1.Session", 30, "with tf.compat.v1.Session(graph=graph) as session:"),
        ("repeated_upload_session", "upload", "Session.run", 60, "session.run(train"),
        ("repeated_upload_session", "run", "Session.run", 60, "session.run(train"),
        ("input_bound", "input", "tf.data", 20, "for batch in dataset.batch(64).prefetch(1):"),
        ("input_bound", "prepare", "tf.py_function", 1280, "def decode(row):"),
        ("input_bound_generator", "prepare", "Dataset.from_generator", 1280, "def rows():"),
        ("loader", "input", "tf.data", 40, "for batch in tf.data.Dataset"),
        ("eager", "step", "Optimizer.apply", 30, "optimizer.apply_gradients("),
        ("placement", "move", "tf.device", 30, "clipped = tf.clip_by_value(scores, 0, 6)"),
        ("placement", "move", "tf.device", 30, "loss = tf.reduce_mean(clipped)"),
        ("constants", "compile", "tf.function", 1, "look_up("),
    ],
)
def test_a_fault_is_recorded_with_its_line(captures, script, kind, api, times, line):
    assert len(events(captures[script], kind, api, line)) == times


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("repeated_upload", {"upload"}),
        ("conversion_in_loop", {"upload"}),
        ("read_back", {"download"}),
        ("retracing", {"compile"}),
        ("retracing_shape", {"compile"}),
        ("rebuilt", {"build", "compile"}),
        ("rebuilt_function", {"build", "compile"}),
        ("rebuilt_session", {"build", "compile"}),
        ("repeated_upload_session", {"build", "upload", "download"}),
        ("input_bound", {"prepare"}),
        ("input_bound_generator", {"prepare"}),
        ("placement", {"move", "upload", "download"}),
        ("constants", {"build", "upload", "download"}),
    ],
)
def test_a_healthy_twin_records_at_most_four_such_events(captures, script, kinds):
    found = [event for event in captures[f"{script}_healthy"].events if event.kind in kinds]
    assert len(found) <= 4


def test_the_same_data_has_one_key_and_different_data_has_different_keys(captures):
    again = events(captures["repeated_upload"], EventKind.UPLOAD)
    assert (len(set(details(again, "key"))), {event.nbytes for event in again}) == (1, {3_000_000})
    fresh = events(captures["conversion_in_loop"], EventKind.UPLOAD)
    assert (len(set(details(fresh, "key"))), {event.nbytes for event in fresh}) == (60, {4096 * 256 * 4})
    fed = events(captures["repeated_upload_session"], EventKind.UPLOAD)
    assert (len(set(details(fed, "key"))), {event.nbytes for event in fed}) == (1, {800_000})


def test_session_run_records_its_downloads(captures):
    downloads = events(captures["rebuilt_session"], EventKind.DOWNLOAD, "Session.run")
    assert [event.nbytes for event in downloads] == [4] * 30


def test_each_trace_records_its_reason_and_signature(captures):
    values, shapes = (events(captures[name], EventKind.COMPILE) for name in ("retracing", "retracing_shape"))
    assert details(values, "reason") == ["first"] + ["value"] * 29
    assert set(details(values, "signature")) == {"rate: float"}
    assert details(shapes, "reason") == ["first"] + ["shape"] * 29
    assert details(shapes, "signature")[-1] == "words: int32[30]"
    assert {event.detail["function"] for event in values} == {"train_step"}


def test_the_bytes_of_constants_in_graphs_are_recorded(captures):
    (traced,) = events(captures["constants"], EventKind.COMPILE)
    assert traced.detail["constants_nbytes"] >= 36_000 * 500 * 4
    assert details(events(captures["constants_healthy"], EventKind.COMPILE), "constants_nbytes") == [None]


def test_a_pipeline_records_its_settings(captures):
    (built,) = events(captures["loader"], EventKind.BUILD, "Dataset.from_tensor_slices")
    mapped = captures["loader"].lines[built.detail.pop("mapped_at")]
    assert mapped.text.startswith("for batch in tf.data.Dataset")
    assert built.detail == {"what": "Dataset", "shuffle_rows": 1280, "batch_rows": 32}
    assert built.nbytes == 1280 * 64 * 64 * 3
    waits = events(captures["loader"], EventKind.INPUT)
    assert (set(details(waits, "prefetch")), set(details(waits, "loader"))) == ({0}, {"tf.data"})
    assert {event.nbytes for event in waits} == {32 * 64 * 64 * 3 * 4}
    assert set(details(events(captures["loader_healthy"], EventKind.INPUT), "prefetch")) == {-1}
    assert set(details(events(captures["input_bound_generator"], EventKind.INPUT), "loader")) == {"generator"}


def test_user_code_runs_on_other_threads_than_the_loop(captures):
    capture = captures["input_bound"]
    loop = {event.thread for event in events(capture, EventKind.INPUT)}
    assert loop.isdisjoint(event.thread for event in events(capture, EventKind.PREPARE))


def test_operations_of_an_eager_step_are_counted(captures):
    assert sum(details(events(captures["eager"], EventKind.OPS), "count")) > 30 * 100
    assert events(captures["eager_healthy"], EventKind.OPS, line="train_step()") == []
    assert events(captures["eager_healthy"], EventKind.STEP) == []


def test_a_move_records_its_operation_and_both_devices(captures):
    there, back = (
        events(captures["placement"], EventKind.MOVE, line=line)[0] for line in ("clipped =", "loss = tf.reduce_mean")
    )
    assert there.detail | {"op": ""} == {
        "op": "",
        "source": "CPU:0",
        "target": "CPU:1",
        "dtype": "float32",
        "shape": [2000, 2000],
    }
    assert (back.detail["op"], back.detail["source"], back.detail["target"]) == ("Mean", "CPU:1", "CPU:0")
    assert (there.nbytes, back.nbytes) == (16_000_000, 16_000_000)


def test_the_command_saves_a_capture(tmp_path):
    script = DOCTOR / "scripts" / "tensorflow" / "placement.py"
    command = [sys.executable, "-m", "forebay", "doctor", "--capture", str(tmp_path / "kept"), str(script)]
    done = subprocess.run(command, env=os.environ | SETTINGS, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    capture = Capture.load(tmp_path / "kept")
    assert (capture.ended, len(events(capture, EventKind.STEP))) == ("done", 30)
    assert {line.file for line in capture.lines} == {str(script)}
