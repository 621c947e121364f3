"""Profiling changes no result, error, trace or profiler of TensorFlow, and all hooks are removed.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import pickle

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import session as sessions
from tensorflow.python.data.ops import dataset_ops, iterator_ops, readers
from tensorflow.python.eager import execute
from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
from tensorflow.python.framework import constant_op, ops
from tensorflow.python.ops import script_ops
from tensorflow.python.profiler import profiler_v2
from tensorflow.python.training import optimizer as v1_optimizers
from tests.doctor.capture.hooks.tensorflow_watched import DATA, attributes, watched

from forebay.doctor.capture.device.ledger import active_profiler
from forebay.doctor.capture.hooks.op_counter import ThreadOps
from forebay.doctor.capture.hooks.tensorflow import input_waits, tensors
from forebay.doctor.capture.process_facts import process_facts

OWNERS = (  # modules and classes whose functions the hooks replace
    np,
    ops,
    ops._EagerTensorBase,
    constant_op,
    pywrap_tfe,
    execute,
    polymorphic_function.Function,
    tracing_compilation,
    sessions.BaseSession,
    dataset_ops.DatasetV2,
    iterator_ops.OwnedIterator,
    readers.TFRecordDatasetV2,
    script_ops.FuncRegistry,
    profiler_v2,
    tf.profiler.experimental,
    v1_optimizers.Optimizer,
)
ARRAY = np.array  # the original, which a hook replaces during profiling


def test_every_patched_attribute_is_restored():
    before = attributes(OWNERS)
    with watched():
        changed = [one != another for one, another in zip(before, attributes(OWNERS), strict=True)]
    assert changed == [True] * len(OWNERS)
    assert attributes(OWNERS) == before


def test_jax_imported_by_tensorflow_is_not_initialized():
    import jax  # noqa: F401  # as `tensorflow.lite` does
    from jax._src import xla_bridge

    assert list(process_facts()["frameworks"]) == ["tensorflow"]
    assert not xla_bridge.backends_are_initialized()


def test_a_profiled_function_has_the_same_number_of_traces():
    def traces():
        seen = []

        @tf.function
        def double(x, times):
            seen.append(times)
            return x * times

        for x in (DATA, DATA, DATA[:3], tf.constant(DATA)):
            double(x, 2)
            double(x, 3)
        return len(seen), double.experimental_get_tracing_count()

    plain = traces()
    with watched():
        assert traces() == plain
    assert traces() == plain


def test_a_compiled_function_may_have_any_parameter_names():
    add = tf.function(lambda call, function: call + function)
    with watched() as seen:
        assert add(call=tf.constant(1), function=tf.constant(2)).numpy() == 3
    assert seen.notes == []


def test_results_and_gradients_are_the_same():
    def loss_and_gradients():
        weights = tf.Variable(tf.ones((30, 2)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(DATA @ weights) + tf.concat([DATA, DATA], 1)[:, :2])
        return float(loss), tape.gradient(loss, weights).numpy().tolist()

    plain = loss_and_gradients()
    with watched():
        assert loss_and_gradients() == plain


def test_numpy_functions_behave_as_usual():
    with watched() as seen:
        assert pickle.loads(pickle.dumps(np.asarray)) is np.asarray
        assert np.array in {ARRAY}
        assert ARRAY in {np.array}
        assert isinstance(np.array, type(ARRAY))
        assert np.array([1, 2], dtype="int8", ndmin=2).tolist() == [[1, 2]]
        assert np.asarray(DATA) is DATA
    assert seen.session.ledger.events == []


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda: tf.matmul(tf.ones((2, 3)), tf.ones((2, 3))), tf.errors.InvalidArgumentError),
        (lambda: tf.constant("a") + 1, tf.errors.InvalidArgumentError),
        (lambda: tf.convert_to_tensor(OWNERS), ValueError),
        (lambda: float(tf.ones(3)), TypeError),
        (lambda: bool(tf.ones(3)), ValueError),
        (lambda: np.asarray(tf.ones(3), dtype="nonsense"), TypeError),
        (lambda: next(iter(tf.data.Dataset.range(0))), StopIteration),
        (lambda: tf.data.Dataset.range(3).batch(-1), tf.errors.InvalidArgumentError),
        (lambda: tf.function(lambda: 1 / 0)(), ZeroDivisionError),
        (lambda: tf.compat.v1.Session().run("nothing"), RuntimeError),
    ],
)
def test_an_error_passes_unchanged_and_later_calls_are_recorded(act, error):
    with pytest.raises(error) as plain:
        act()
    with watched() as seen:
        with pytest.raises(error) as raised:
            act()
        tf.constant(DATA)
    assert (type(raised.value), raised.value.args) == (type(plain.value), plain.value.args)
    assert seen.of("upload", "tf.constant")
    assert seen.notes == []


def test_an_error_in_a_py_function_of_a_pipeline_passes_unchanged():
    def broken(row):
        raise LookupError("no such row")

    def read_row():
        dataset = tf.data.Dataset.range(2).map(lambda row: tf.py_function(broken, [row], tf.int64))
        with pytest.raises(tf.errors.UnknownError, match="LookupError: no such row"):
            next(iter(dataset))

    read_row()
    with watched() as seen:
        read_row()
    assert seen.of("prepare") == []


def test_an_error_in_a_hook_is_noted_and_the_call_succeeds(monkeypatch):
    monkeypatch.setattr(tensors, "fingerprint", lambda array: 1 / 0)
    monkeypatch.setattr(ThreadOps, "add_sample", lambda *_, **__: 1 / 0)
    with watched() as seen:
        assert tf.reduce_sum(tf.constant(DATA)).numpy() == DATA.sum()
    assert [note.partition(" in tensorflow_untouched_cases.py:")[0] for note in sorted(seen.notes)] == [
        "tf operations is recorded only in part: ZeroDivisionError",
        "tf.convert_to_tensor is recorded only in part: ZeroDivisionError",
    ]


def test_a_version_without_a_hooked_function_is_noted(monkeypatch):
    monkeypatch.delattr(tracing_compilation, "_create_concrete_function")
    with watched() as seen:
        tf.constant(DATA)
    assert [note.split(":")[0] for note in seen.notes] == ["tracing of tf.function is not recorded"]
    assert seen.of("upload")


def test_an_active_tensorflow_profiler_is_detected(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    name = active_profiler()
    tf.profiler.experimental.stop(save=False)
    assert (name, active_profiler()) == ("tf.profiler", None)


def test_another_profiler_is_left_alone(tmp_path):
    batches = iter(tf.data.Dataset.range(100))
    total = tf.function(lambda batches: next(batches) + 1)
    with watched() as seen:
        tf.profiler.experimental.start(str(tmp_path))
        for _ in range(input_waits.WARM_UP_CALLS + 3):
            total(batches)
        tf.profiler.experimental.stop()
    assert seen.of("input") == []


def test_a_profiler_can_start_while_input_waits_are_recorded(tmp_path):
    batches = iter(tf.data.Dataset.range(100))
    total = tf.function(lambda batches: next(batches) + 1)
    with watched() as seen:
        for _ in range(input_waits.WARM_UP_CALLS + 3):
            total(batches)
        tf.profiler.experimental.start(str(tmp_path))
        tf.profiler.experimental.stop()
    assert seen.of("input")
    assert seen.notes == []
