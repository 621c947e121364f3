"""The events of tf.data pipelines: their settings, and waits for input inside compiled functions.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import tensorflow as tf
from tests.doctor.capture.hooks.tensorflow_watched import DATA, watched

from forebay.doctor.capture.hooks.tensorflow import input_waits
from forebay.doctor.capture.hooks.tensorflow.host_trace import BatchRead
from forebay.doctor.capture.ledger import Ledger


def test_a_pipeline_records_its_settings():
    with watched() as seen:
        rows = tf.data.Dataset.from_tensor_slices(DATA).shuffle(7)
        next(iter(rows.map(tf.square, num_parallel_calls=3).batch(5).prefetch(2)))
        next(iter(rows.prefetch(4).batch(6).take(1)))
    shared = {"loader": "tf.data", "shuffle_rows": 7}
    row_map = seen.detail("input", "row_map")[0]
    assert seen.session.ledger.lines.read()[row_map].text.startswith("next(iter(rows.map(")
    assert [event.detail for event in seen.of("input")] == [
        shared | {"workers": 3, "batch_rows": 5, "prefetch": 2, "row_map": row_map},
        shared | {"batch_rows": 6, "prefetch": 0},
    ]
    assert [event.nbytes for event in seen.of("input")] == [5 * 120, 6 * 120]
    assert [(event.api, event.nbytes) for event in seen.of("build")] == [
        ("Dataset.from_tensor_slices", DATA.nbytes),
        ("iter(dataset)", 0),
        ("iter(dataset)", 0),
    ]
    assert seen.detail("build", "shuffle_rows") == [7, None, None]


def test_a_map_of_whole_batches_is_no_map_of_rows():
    with watched() as seen:
        next(iter(tf.data.Dataset.from_tensor_slices(DATA).batch(5).map(tf.square)))
    assert seen.detail("input", "row_map") == [None]


def test_a_map_with_parallel_calls_from_a_tensor_is_not_serial():
    rows = tf.data.Dataset.from_tensor_slices(DATA)
    with watched() as seen:
        next(iter(rows.map(tf.square, num_parallel_calls=tf.constant(3, tf.int64))))
        next(iter(rows.map(tf.square)))
    assert [value is None for value in seen.detail("input", "mapped_at")] == [True, False]


def test_an_input_wait_of_a_compiled_function_is_inside_its_run():
    numbers = tf.data.Dataset.range(800).map(lambda x: tf.cast(x, tf.float32)).batch(40).prefetch(1)
    batches = iter(numbers)
    total = tf.function(lambda batches: tf.reduce_sum(next(batches)))
    with watched() as seen:
        for _ in range(18):
            total(batches)
    runs = [(event.start, event.end) for event in seen.of("run")]
    waits = [(event.start, event.end) for event in seen.of("input")]
    assert len(waits) >= 10
    assert all(any(start <= wait[0] <= wait[1] <= end for start, end in runs) for wait in waits)
    assert {event.nbytes for event in seen.of("input")} == {160}
    assert seen.lines("input") == {"total(batches)"}


def test_the_input_waits_of_calls_outside_a_trace_are_estimated():
    batches = iter(tf.data.Dataset.range(2000).batch(40))
    total = tf.function(lambda batches: tf.reduce_sum(next(batches)))
    with watched() as seen:
        for _ in range(input_waits.WARM_UP_CALLS + input_waits.EARLY_CALLS + 4):
            total(batches)
    traced = [event for event in seen.of("input") if "estimated" not in event.detail]
    assert len(traced) == input_waits.EARLY_CALLS
    assert len(traced) < len(seen.of("input")) < len(seen.of("run"))  # the first call compiles the function


def test_estimates_use_the_trace_after_the_profiled_steps_instead_of_the_early_trace():
    calls = [input_waits._ReadingCall(1, start, start + 100, 0, {}, trace) for start, trace in ((0, 1), (200, 2))]
    others = [input_waits._ReadingCall(1, start, end, 0, {}) for start, end in ((400, 700), (800, 1200))]
    reads = [BatchRead(10, 90, 8), BatchRead(225, 250, 8)]
    ledger = Ledger()
    waits = input_waits.InputWaits(ledger, None)
    waits._traced_calls, waits._reads = calls, reads
    waits._other_calls.extend(others)  # the last one is too long to be compared with the traced calls
    waits.finish()
    assert [(event.start, event.end) for event in ledger.events] == [(10, 90), (225, 250), (475, 550)]
