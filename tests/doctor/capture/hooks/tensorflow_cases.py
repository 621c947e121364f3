"""The TensorFlow hooks change no result and record the expected events.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks clash in one process.
"""

import pickle
import threading

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
from tests.doctor.capture.hooks.crossing_log import assert_listed
from tests.doctor.capture.hooks.tensorflow_watched import attributes, in_thread, watched

from forebay.doctor.capture.device.ledger import active_profiler
from forebay.doctor.capture.hooks.op_counter import ThreadOps
from forebay.doctor.capture.hooks.tensorflow import functions as tensorflow_functions
from forebay.doctor.capture.hooks.tensorflow import input_waits as tensorflow_waits
from forebay.doctor.capture.hooks.tensorflow import tensors as tensorflow_values
from forebay.doctor.capture.hooks.tensorflow import transfers as tensorflow_transfers
from forebay.doctor.capture.hooks.tensorflow.host_trace import BatchRead
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.memory_samples import tensorflow_memory_limits
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
DATA = np.arange(600, dtype="float32").reshape(20, 30)


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


def test_the_memory_limit_of_a_device_is_known():
    tf.constant(1)
    assert tensorflow_memory_limits()["CPU:0"] > 0


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


def test_results_and_gradients_are_the_same():
    def loss_and_gradients():
        weights = tf.Variable(tf.ones((30, 2)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(DATA @ weights) + tf.concat([DATA, DATA], 1)[:, :2])
        return float(loss), tape.gradient(loss, weights).numpy().tolist()

    plain = loss_and_gradients()
    with watched():
        assert loss_and_gradients() == plain


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
    monkeypatch.setattr(tensorflow_values, "fingerprint", lambda array: 1 / 0)
    monkeypatch.setattr(ThreadOps, "add_sample", lambda *_, **__: 1 / 0)
    with watched() as seen:
        assert tf.reduce_sum(tf.constant(DATA)).numpy() == DATA.sum()
    assert [note.partition(" in tensorflow_cases.py:")[0] for note in sorted(seen.notes)] == [
        "tf operations is recorded only in part: ZeroDivisionError",
        "tf.convert_to_tensor is recorded only in part: ZeroDivisionError",
    ]


def test_a_version_without_a_hooked_function_is_noted(monkeypatch):
    monkeypatch.delattr(tracing_compilation, "_create_concrete_function")
    with watched() as seen:
        tf.constant(DATA)
    assert [note.split(":")[0] for note in seen.notes] == ["tracing of tf.function is not recorded"]
    assert seen.of("upload")


@pytest.mark.parametrize(
    ("act", "api"),
    [
        (lambda: tf.constant(DATA), "tf.constant"),
        (lambda: tf.convert_to_tensor(DATA), "tf.convert_to_tensor"),
        (lambda: tf.cast(DATA, tf.float64), "tf.cast"),
        (lambda: tf.Variable(DATA), "tf.Variable"),
        (lambda: tf.matmul(DATA, DATA, transpose_b=True), "tf.matmul"),
        (lambda: tf.square(DATA), "tf.square"),
        (lambda: tf.zeros((20, 30)) + DATA, "tf.convert_to_tensor"),
        (lambda: DATA + tf.zeros((20, 30)), "tf.convert_to_tensor"),
        (lambda: tf.function(lambda x: x)(DATA), "tf.function"),
        (lambda: tf.data.Dataset.from_tensor_slices(DATA), "Dataset.from_tensor_slices"),
        (lambda: tf.data.Dataset.from_tensors((DATA,)), "Dataset.from_tensors"),
    ],
)
def test_an_upload_has_the_name_of_the_users_call(act, api):
    with watched() as seen:
        act()
    assert {event.api for event in seen.of("upload")} == {api}
    assert sum(event.nbytes for event in seen.of("upload")) in (DATA.nbytes, 2 * DATA.nbytes)
    assert set(seen.detail("upload", "from_dtype")) == {"float32"}
    assert {key[:3] for key in seen.detail("upload", "key")} == {"<f4"}


def test_equal_data_has_equal_keys_and_other_data_another_key():
    with watched() as seen:
        tf.constant(DATA)
        tf.square(DATA.copy())
        tf.constant(DATA + 1)
    first, second, third = seen.detail("upload", "key")
    assert first == second != third


def test_the_upload_of_a_list_is_recorded_as_a_list():
    with watched() as seen:
        tf.constant([[1.0, 2.0]] * 200)
    assert seen.detail("upload", "from_dtype") == ["list"]
    assert [event.nbytes for event in seen.of("upload")] == [1600]


def test_axes_shapes_and_single_numbers_are_not_uploads():
    x = tf.ones((4, 5, 6))
    with watched() as seen:
        tf.reduce_mean(x, axis=[0, 1])
        tf.reshape(x, (20, 6))[0, 1:3] * 2.0 + 1
        tf.transpose(x, np.array([2, 0, 1]))
    assert seen.of("upload") == []


@pytest.mark.parametrize(
    ("act", "api"),
    [
        (lambda x: x.numpy(), "Tensor.numpy"),
        (float, "float(tensor)"),
        (int, "int(tensor)"),
        (bool, "bool(tensor)"),
        (str, "print(tensor)"),
        (repr, "print(tensor)"),
        (lambda x: f"{x:.2f}", "format(tensor)"),
        (lambda x: np.asarray(x), "np.asarray(tensor)"),
        (lambda x: np.array(x, dtype="float64"), "np.array(tensor)"),
        (lambda x: tf.Variable(x).numpy(), "Tensor.numpy"),
        (lambda x: repr(tf.Variable(x)), "Tensor.numpy"),
    ],
)
def test_every_kind_of_read_is_one_download(act, api):
    x = tf.constant(3.0)
    with watched() as seen:
        act(x)
    (read,) = seen.of("download")
    assert (read.api, read.nbytes) == (api, 4)
    assert read.detail == {"device": "CPU:0", "dtype": "float32", "shape": []}


def test_numpy_functions_behave_as_usual():
    with watched() as seen:
        assert pickle.loads(pickle.dumps(np.asarray)) is np.asarray
        assert np.array in {ARRAY}
        assert ARRAY in {np.array}
        assert isinstance(np.array, type(ARRAY))
        assert np.array([1, 2], dtype="int8", ndmin=2).tolist() == [[1, 2]]
        assert np.asarray(DATA) is DATA
    assert seen.session.ledger.events == []


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


def test_events_have_the_thread_of_their_call():
    def convert():
        tf.constant(DATA)
        tf.square(tf.ones(3)).numpy()

    with watched() as seen:
        threads = [in_thread(convert), in_thread(convert), threading.get_ident()]
        convert()
    assert [event.thread for event in seen.of("upload")] == threads
    assert [event.thread for event in seen.of("download")] == threads


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


def test_operations_on_small_tensors_are_counted_separately():
    small, large = tf.ones(8), tf.ones(5000)
    with watched() as seen:
        for _ in range(30):
            tf.square(small)
        for _ in range(20):
            tf.concat([small, large], 0)
    counts = {text: [0, 0] for text in seen.lines("ops")}
    for event in seen.of("ops"):
        counts[seen.session.ledger.lines.read()[event.line].text][0] += event.detail["count"]
        counts[seen.session.ledger.lines.read()[event.line].text][1] += event.detail["small"]
        assert event.detail["small_seconds"] <= event.seconds
    assert counts["tf.square(small)"] == [30, 30]
    assert counts["tf.concat([small, large], 0)"] == [20, 0]


def test_calls_outside_a_trace_wait_as_long_as_the_traced_calls():
    batches = iter(tf.data.Dataset.range(2000).batch(40))
    total = tf.function(lambda batches: tf.reduce_sum(next(batches)))
    with watched() as seen:
        for _ in range(tensorflow_waits.WARM_UP_CALLS + tensorflow_waits.EARLY_CALLS + 4):
            total(batches)
    traced = [event for event in seen.of("input") if "estimated" not in event.detail]
    assert len(traced) == tensorflow_waits.EARLY_CALLS
    assert len(traced) < len(seen.of("input")) < len(seen.of("run"))  # the first call compiles the function


def test_a_trace_after_the_profiled_steps_replaces_the_early_one():
    calls = [tensorflow_waits._ReadingCall(1, start, start + 100, 0, {}, trace) for start, trace in ((0, 1), (200, 2))]
    others = [tensorflow_waits._ReadingCall(1, start, end, 0, {}) for start, end in ((400, 700), (800, 1200))]
    reads = [BatchRead(10, 90, 8), BatchRead(225, 250, 8)]
    ledger = Ledger()
    waits = tensorflow_waits.InputWaits(ledger, None)
    waits._traced_calls, waits._reads = calls, reads
    waits._other_calls.extend(others)  # the last one is too long to be compared with the traced calls
    waits.finish()
    assert [(event.start, event.end) for event in ledger.events] == [(10, 90), (225, 250), (475, 550)]


def test_a_profiler_can_start_while_input_waits_are_recorded(tmp_path):
    batches = iter(tf.data.Dataset.range(100))
    total = tf.function(lambda batches: next(batches) + 1)
    with watched() as seen:
        for _ in range(tensorflow_waits.WARM_UP_CALLS + 3):
            total(batches)
        tf.profiler.experimental.start(str(tmp_path))
        tf.profiler.experimental.stop()
    assert seen.of("input")
    assert seen.notes == []


def test_another_profiler_is_left_alone(tmp_path):
    batches = iter(tf.data.Dataset.range(100))
    total = tf.function(lambda batches: next(batches) + 1)
    with watched() as seen:
        tf.profiler.experimental.start(str(tmp_path))
        for _ in range(tensorflow_waits.WARM_UP_CALLS + 3):
            total(batches)
        tf.profiler.experimental.stop()
    assert seen.of("input") == []


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


def test_a_function_that_is_only_traced_does_not_give_its_graph_to_the_next_call(monkeypatch):
    graphs, number = [], tf.constant(1.0)
    find_moves = lambda ledger, operations, devices: graphs.append({each.type for each in operations}) or []  # noqa: E731
    monkeypatch.setattr(tensorflow_functions, "find_moves", find_moves)
    traced, called, other = tf.function(tf.sin), tf.function(tf.cos), tf.function(tf.tan)
    called(number)
    with watched():
        traced.get_concrete_function(number)
        called(number)
        other(number)
    assert [types & {"Sin", "Cos", "Tan"} for types in graphs] == [set(), {"Tan"}]


def test_a_compiled_function_may_have_any_parameter_names():
    add = tf.function(lambda call, function: call + function)
    with watched() as seen:
        assert add(call=tf.constant(1), function=tf.constant(2)).numpy() == 3
    assert seen.notes == []


def test_a_copy_from_one_gpu_to_another_is_a_move():
    class OnAnotherGpu:
        device = "/job:localhost/replica:0/task:0/device:GPU:1"
        dtype, shape = tf.float32, tf.TensorShape([20, 30])

    class OnGpu(OnAnotherGpu):
        device = "/job:localhost/replica:0/task:0/device:GPU:0"

    kind, api, detail = tensorflow_transfers._describe_move("Identity", OnAnotherGpu(), OnGpu())
    assert (kind, api) == ("move", "tf.device")
    assert (detail["source"], detail["target"]) == ("GPU:1", "GPU:0")


def test_a_tensorflow_1_optimizer_ends_a_step():
    weights = tf.Variable(1.0)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    with watched() as seen:
        for _ in range(3):
            optimizer.minimize(lambda: weights**2)
    assert [event.api for event in seen.of("step")] == ["Optimizer.apply_gradients"] * 3


def test_an_active_tensorflow_profiler_is_detected(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    name = active_profiler()
    tf.profiler.experimental.stop(save=False)
    assert (name, active_profiler()) == ("tf.profiler", None)


def test_a_script_without_a_loop_has_a_list_of_its_crossings():
    data = np.ones((64, 64), np.float32)

    def run():
        tensor = tf.constant(data)
        added = tensor + data
        product = tf.matmul(tensor, data)
        state = tf.Variable(data)
        state.assign(data)
        if tf.reduce_all(added > 0):
            float(product[0, 0])
        return state.numpy()

    assert_listed(
        run,
        [
            ("tensor = tf.constant(data)", "tf.constant", "upload", "explicit"),
            ("added = tensor + data", "tf.convert_to_tensor", "upload", "implied"),
            ("product = tf.matmul(tensor, data)", "tf.matmul", "upload", "implied"),
            ("state = tf.Variable(data)", "tf.Variable", "upload", "explicit"),
            ("state.assign(data)", "Variable.assign", "upload", "explicit"),
            ("if tf.reduce_all(added > 0):", "bool(tensor)", "download", "implied"),
            ("float(product[0, 0])", "float(tensor)", "download", "explicit"),
            ("return state.numpy()", "Tensor.numpy", "download", "explicit"),
        ],
    )
