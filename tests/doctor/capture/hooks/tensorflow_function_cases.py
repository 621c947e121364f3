"""The events of TensorFlow operations, compiled functions and optimizers.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import tensorflow as tf
from tests.doctor.capture.hooks.tensorflow_watched import watched

from forebay.doctor.capture.hooks.tensorflow import functions


def test_operations_are_counted_at_their_lines_and_functions_are_runs():
    double = tf.function(lambda x: x * 2)
    x = double(tf.ones(3))
    with watched() as seen:
        for _ in range(50):
            x = tf.tanh(x)
            x = double(x)
    assert sum(seen.detail("ops", "count")) == 50
    assert seen.lines("ops") == {"x = tf.tanh(x)"}
    assert len(seen.of("run", "tf.function")) == 50


def test_functions_that_run_eagerly_are_counted_as_operations():
    double = tf.function(lambda x: x * 2)
    tf.config.run_functions_eagerly(True)
    try:
        with watched() as seen:
            double(tf.ones(3))
    finally:
        tf.config.run_functions_eagerly(False)
    assert (seen.of("run"), seen.of("compile")) == ([], [])
    assert seen.of("ops")


def test_a_nested_function_records_no_run_and_no_trace():
    inner = tf.function(lambda x: x + 1)
    outer = tf.function(lambda x: inner(x) * 2)
    with watched() as seen:
        outer(tf.ones(3))
        outer(tf.ones(3))
    assert (len(seen.of("compile")), len(seen.of("run"))) == (1, 2)


def test_a_trace_records_its_reason_and_signature_without_values():
    @tf.function
    def step(x, rate, names):
        return x

    with watched() as seen:
        step(tf.ones((2, 3)), 0.125, ["secret"])
        step(tf.ones((2, 3)), 0.25, ["secret"])
        step(tf.ones((4, 3)), 0.25, ["secret"])
        step(tf.ones((4, 3), tf.float64), 0.25, ["secret"])
    assert seen.detail("compile", "reason") == ["first", "value", "shape", "dtype"]
    assert seen.detail("compile", "signature")[2:] == [
        "x: float32[4, 3], rate: float, names: str",
        "x: float64[4, 3], rate: float, names: str",
    ]


def test_operations_on_small_tensors_are_counted_separately():
    small, large = tf.ones(8), tf.ones(5000)
    with watched() as seen:
        for _ in range(30):
            tf.square(small)
        for _ in range(20):
            tf.concat([small, large], 0)
    counts, lines = {text: [0, 0] for text in seen.lines("ops")}, seen.session.ledger.lines.read()
    for event in seen.of("ops"):
        counts[lines[event.line].text][0] += event.detail["count"]
        counts[lines[event.line].text][1] += event.detail["small"]
        assert event.detail["small_seconds"] <= event.seconds
    assert counts["tf.square(small)"] == [30, 30]
    assert counts["tf.concat([small, large], 0)"] == [20, 0]


def test_a_function_that_is_only_traced_does_not_give_its_graph_to_the_next_call(monkeypatch):
    graphs, number = [], tf.constant(1.0)
    find_moves = lambda ledger, operations, devices: graphs.append({each.type for each in operations}) or []  # noqa: E731
    monkeypatch.setattr(functions, "find_moves", find_moves)
    traced, called, other = tf.function(tf.sin), tf.function(tf.cos), tf.function(tf.tan)
    called(number)
    with watched():
        traced.get_concrete_function(number)
        called(number)
        other(number)
    assert [types & {"Sin", "Cos", "Tan"} for types in graphs] == [set(), {"Tan"}]


def test_a_tensorflow_1_optimizer_ends_a_step():
    weights = tf.Variable(1.0)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    with watched() as seen:
        for _ in range(3):
            optimizer.minimize(lambda: weights**2)
    assert [event.api for event in seen.of("step")] == ["Optimizer.apply_gradients"] * 3
