"""The events that calls of JAX record.

`test_framework_cases.py` runs this file in the process of JAX, because frameworks conflict in one process.
That process has two devices.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import core, monitoring
from jax._src.array import ArrayImpl
from tests.doctor.capture.hooks.crossing_log import assert_listed
from tests.doctor.capture.hooks.hook_scripts import run_script, watched

from forebay.doctor.capture.device.ledger import active_profiler
from forebay.doctor.capture.hooks import op_counter
from forebay.doctor.capture.hooks.op_counter import ThreadOps
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector


def test_a_changed_dtype_is_the_reason_of_a_compilation():
    def run():
        twice = jax.jit(lambda x: x * 2)
        return twice(np.ones(3, np.float32)), twice(np.ones(3, np.int32))

    assert watched(run).details("compile", "reason", "jax.jit") == ["first", "dtype"]


def test_the_bytes_of_compiled_constants_are_recorded():
    table = np.ones((1000, 100), np.float32)
    seen = watched(lambda: jax.jit(lambda x: (x + table).sum())(np.float32(1)))
    assert seen.details("compile", "constants_nbytes") == [table.nbytes]


def test_host_data_in_a_tree_is_an_upload_of_the_argument():
    def run():
        step = jax.jit(lambda weights, batch: weights + batch["x"].sum())
        return step(jnp.ones(3), {"x": np.ones((64, 64), np.float32), "y": [np.ones(8, np.int32)]})

    seen = watched(run)
    assert [event.nbytes for event in seen.of("upload", "jax.jit: <lambda>(batch)")] == [64 * 64 * 4 + 8 * 4]


def test_a_tree_of_device_arrays_is_not_an_upload():
    weights = {"w": jnp.ones((3, 3)), "b": jnp.ones(3)}

    def run():
        step = jax.jit(lambda weights: jax.tree.map(lambda each: each * 2, weights))
        return [step(weights) for _ in range(40)]

    assert watched(run).of("upload") == []


def test_host_data_in_later_calls_is_recorded_after_a_few_calls():
    on_device, on_host = {"x": jnp.ones(512)}, {"x": np.ones(512, np.float32)}

    def run():
        step = jax.jit(lambda batch: batch["x"].sum())
        return [step(batch) for batch in [on_device] * 20 + [on_host] * 40]

    assert len(watched(run).of("upload")) >= 24


@pytest.mark.parametrize(
    ("read", "api"),
    [
        (float, "float(array)"),
        (int, "int(array)"),
        (bool, "bool(array)"),
        (complex, "complex(array)"),
        (str, "print(array)"),
        (repr, "print(array)"),
        (lambda array: f"{array:.2f}", "format(array)"),
        (lambda array: array.item(), "jax.Array.item"),
        (lambda array: array.tolist(), "jax.Array.tolist"),
        (lambda array: array.__array__(), "np.asarray(array)"),
        (lambda array: array._value, "jax.Array._value"),
        (lambda array: jax.device_get(array), "jax.device_get"),
    ],
)
def test_every_kind_of_read_is_one_download(read, api):
    array = jnp.ones(())
    downloads = watched(lambda: read(array)).of("download")
    assert [(event.api, event.nbytes, event.detail["device"]) for event in downloads] == [(api, 4, "cpu:0")]


def test_using_an_array_as_an_index_is_a_download():
    array = jnp.ones((), jnp.int32)
    assert [event.api for event in watched(lambda: [1, 2][array]).of("download")] == ["index(array)"]


def test_a_numpy_read_of_an_array_on_two_devices_is_recorded():
    array = jax.device_put(jnp.ones((4, 4)), _sharding_over_two_devices())
    assert [event.api for event in watched(lambda: np.isnan(array)).of("download")] == ["np.asarray(array)"]


def test_a_note_says_that_some_numpy_reads_are_not_recorded():
    assert any("np.asarray" in note for note in watched(lambda: jnp.ones(3)).notes)


def test_device_get_of_a_tree_is_one_download():
    tree = {"w": jnp.ones((3, 3)), "b": jnp.ones(3), "host": np.ones(3)}
    assert [event.nbytes for event in watched(lambda: jax.device_get(tree)).of("download")] == [48]


@pytest.mark.parametrize(
    ("put", "api", "from_dtype"),
    [
        (lambda data: jax.device_put(data), "jax.device_put", "float64"),
        (lambda data: jnp.asarray(data), "jnp.asarray", "float64"),
        (lambda data: jnp.array(data, dtype=jnp.float16), "jnp.array", "float64"),
        (lambda data: jnp.mean(data), "jnp.mean", "float64"),
        (lambda data: jnp.dot(data, data), "jnp.dot", "float64"),
        (lambda data: jnp.stack([data, data]), "jnp.stack", "float64"),
        (lambda data: jnp.asarray(data.tolist()), "jnp.asarray", "list"),
    ],
)
def test_every_conversion_of_host_data_is_an_upload(put, api, from_dtype):
    data = np.ones((64, 64))
    uploads = watched(lambda: put(data)).of("upload")
    assert [(event.api, event.detail["from_dtype"]) for event in uploads] == [(api, from_dtype)]


@pytest.mark.parametrize("make", [lambda array: jnp.array(array), lambda array: jnp.array([array, array])])
def test_an_array_made_of_device_arrays_is_not_an_upload(make):
    array = jnp.ones(3)
    assert watched(lambda: make(array)).of("upload") == []


def test_device_put_to_another_device_is_a_move():
    array, other = jnp.ones((8, 8)), jax.devices()[1]
    (event,) = watched(lambda: jax.device_put(array, other)).of("move")
    assert (event.nbytes, event.detail["source"], event.detail["target"]) == (256, "cpu:0", "cpu:1")


@pytest.mark.parametrize(
    ("wait", "api"),
    [
        (lambda array: jax.block_until_ready(array), "jax.block_until_ready"),
        (lambda array: array.block_until_ready(), "jax.Array.block_until_ready"),
        (lambda array: jax.effects_barrier(), "jax.effects_barrier"),
    ],
)
def test_an_explicit_wait_is_one_event(wait, api):
    array = jnp.ones(3)
    assert [event.api for event in watched(lambda: wait(array)).of("sync")] == [api]


def test_all_hooks_are_removed():
    owners = (jax, jnp, jax.nn, ArrayImpl, jax.stages.Compiled, core.EvalTrace)
    before = [dict(vars(owner)) for owner in owners]
    listeners = monitoring.get_event_duration_listeners()
    watched(lambda: jax.jit(lambda x: x)(np.ones(3)))
    assert [dict(vars(owner)) for owner in owners] == before
    assert monitoring.get_event_duration_listeners() == listeners


def test_a_jitted_function_of_an_ended_session_records_nothing():
    seen = watched(lambda: jax.jit(lambda x: x * 2))
    silent = watched(lambda: seen.result(np.ones(3)))
    assert silent.of("run") == []


def test_a_function_jitted_before_profiling_is_recorded_if_the_script_calls_it_by_name(monkeypatch):
    earlier = jax.jit(lambda x: x * 2)
    monkeypatch.setattr("__main__.earlier", earlier, raising=False)
    seen = watched(lambda: sys.modules["__main__"].earlier(np.ones(3)))
    assert len(seen.of("run")) == 1
    assert any(note.startswith("earlier was jitted before") for note in seen.notes)
    assert sys.modules["__main__"].earlier is earlier


def test_a_name_that_is_reassigned_during_profiling_keeps_its_new_value(monkeypatch):
    monkeypatch.setattr("__main__.earlier", jax.jit(lambda x: x * 2), raising=False)
    watched(lambda: monkeypatch.setattr("__main__.earlier", "something else"))
    assert sys.modules["__main__"].earlier == "something else"


def operations_in(seen):
    return sum(seen.details("ops", "count"))


@pytest.mark.parametrize(
    ("run", "times"),
    [
        (lambda x: x * 2 + x, 2),
        (lambda x: -x, 1),
        (lambda x: x @ x, 1),
        (lambda x: x[0], 1),
        (lambda x: x.sum(), 1),
        (lambda x: x.reshape(-1).astype(jnp.int32), 2),
        (lambda x: jnp.tanh(x), 1),
        (lambda x: jnp.sum(x), 1),
        (lambda x: jnp.where(x > 0, x, 0), 2),
        (lambda x: jnp.split(x, 2), 1),
        (lambda x: jax.nn.relu(x), 1),
        (lambda x: jax.lax.mul(x, x), 1),
        (lambda x: jnp.linalg.norm(x), 1),
        (lambda x: jax.random.split(jax.random.key(0)), 2),
        (lambda x: jax.random.normal(jax.random.PRNGKey(0), (3,)), 2),
        (lambda x: jnp.shape(x), 0),
        (lambda x: jax.jit(jnp.tanh)(x), 0),
        (lambda x: jax.make_jaxpr(lambda y: jnp.tanh(x) * y)(1.0), 0),
        (lambda x: jax.eval_shape(jnp.tanh, x), 0),
        (lambda x: jnp.asarray(np.ones(3)), 0),
        (lambda x: float(x[0, 0]), 1),
    ],
)
def test_the_operations_of_an_expression_are_counted(run, times):
    x = jnp.ones((4, 4))
    run(x)  # compile first; a compilation is no operation
    assert operations_in(watched(lambda: run(x))) == times


def test_operations_of_a_gradient_have_the_lines_of_its_function():
    def loss(x):
        x = jnp.sin(x)  # here
        return x.sum()

    seen = watched(lambda: jax.grad(loss)(jnp.ones(3)))
    counted = {seen.text(event) for event in seen.of("ops")}
    assert "x = jnp.sin(x)  # here" in counted
    assert operations_in(seen) >= 3


@pytest.mark.parametrize("transform", [jax.grad, jax.value_and_grad, jax.vmap])
def test_each_call_of_a_transformed_function_is_one_event(transform):
    name = transform.__name__

    def run():
        transformed = getattr(jax, name)(lambda x: jnp.sin(x))
        return [transformed(jnp.float32(1) if name != "vmap" else jnp.ones(3)) for _ in range(3)]

    assert [(event.api, event.detail["function"]) for event in watched(run).of("transform")] == [
        (f"jax.{name}", "<lambda>")
    ] * 3


@pytest.mark.parametrize(
    ("run", "times"),
    [
        (lambda x: jax.jit(jax.grad(jnp.sum))(x), 0),
        (lambda x: jax.vmap(jax.grad(jnp.sum))(jnp.ones((2, 3))), 1),
        (lambda x: jax.grad(lambda y: jax.vmap(jnp.sin)(y).sum())(x), 1),
        (lambda x: jax.lax.scan(lambda c, y: (c + jax.grad(jnp.sin)(y), y), 0.0, x)[0], 0),
    ],
)
def test_only_the_outermost_transformed_call_is_an_event(run, times):
    assert len(watched(lambda: run(jnp.ones(3))).of("transform")) == times


def test_a_transformed_function_of_an_ended_session_records_nothing():
    seen = watched(lambda: jax.grad(jnp.sin))
    assert watched(lambda: seen.result(1.0)).of("transform") == []


def test_an_operation_imported_in_an_ended_session_records_nothing():
    seen = watched(lambda: jnp.tanh)
    x = jnp.ones(3)
    assert watched(lambda: seen.result(x)).result.shape == (3,)
    assert operations_in(watched(lambda: seen.result(x))) == 0


def test_counting_ends_after_the_maximum_number_of_spans(monkeypatch):
    monkeypatch.setattr(op_counter, "MAX_SPANS", 1)
    monkeypatch.setattr(op_counter, "SPAN_NS", 0)
    x = jnp.ones(3)
    seen = watched(lambda: [x * 2 for _ in range(10)])
    assert operations_in(seen) < 10
    assert any("were counted only in the first" in note for note in seen.notes)


def test_a_read_inside_an_operation_is_recorded():
    length = jnp.int32(3)
    assert [event.api for event in watched(lambda: jnp.zeros(length)).of("download")] == ["index(array)"]


def test_an_error_in_a_hook_is_noted_and_the_call_succeeds(monkeypatch):
    monkeypatch.setattr(ThreadOps, "add_sample", lambda *_, **__: 1 / 0)
    seen = watched(lambda: jnp.ones(3) * 2)
    assert seen.result.tolist() == [2.0, 2.0, 2.0]
    assert any(note.startswith("jax operations is recorded only in part: ZeroDivisionError in ") for note in seen.notes)


@pytest.mark.parametrize(
    ("script", "mark"), [("repeated_upload", ("run", "jax.jit")), ("eager", ("transform", "jax.grad"))]
)
def test_only_steps_are_recorded_after_the_window(script, mark, monkeypatch):
    monkeypatch.setattr(op_counter, "SPAN_NS", 10**12)  # ns; otherwise slow lines before the loop record a span
    at_once = {"wait_seconds": 0.0, "sample_seconds": 0.0, "short_seconds": 0.0}
    session = Session(StepDetector(warm_up=2, steps=5, untraced_steps=5, **at_once))
    session.start()
    run_script(f"jax/{script}")
    session.stop()
    capture = session.capture(f"{script}.py")
    late = [event for event in capture.events if event.start > capture.window.end]
    assert len(capture.window.untraced) == 5
    assert {(event.kind, event.api) for event in late} == {mark}


def test_an_active_jax_profiler_is_detected(tmp_path):
    with jax.profiler.trace(tmp_path):
        name = active_profiler()
    assert (name, active_profiler()) == ("jax.profiler", None)


def _sharding_over_two_devices():
    return jax.sharding.NamedSharding(jax.make_mesh((2,), ("rows",)), jax.sharding.PartitionSpec("rows"))


def test_a_script_without_a_loop_has_a_list_of_its_crossings():
    data = np.ones((64, 64), np.float32)

    def run():
        array = jnp.asarray(data)
        moved = jax.device_put(array, jax.devices()[1])
        total = jnp.sum(data)
        product = array * data
        mirrored = data - product
        jax.jit(lambda x: x * 2)(data)
        mirrored.block_until_ready()
        if total > 0:
            float(total)
        return jax.device_get(moved)

    assert_listed(
        run,
        [
            ("array = jnp.asarray(data)", "jnp.asarray", "upload", "explicit"),
            ("moved = jax.device_put(array, jax.devices()[1])", "jax.device_put", "move", "explicit"),
            ("total = jnp.sum(data)", "jnp.sum", "upload", "implied"),
            ("product = array * data", "array * numpy", "upload", "implied"),
            ("mirrored = data - product", "array - numpy", "upload", "implied"),
            ("jax.jit(lambda x: x * 2)(data)", "jax.jit: <lambda>(x)", "upload", "implied"),
            ("mirrored.block_until_ready()", "jax.Array.block_until_ready", "sync", "explicit"),
            ("if total > 0:", "bool(array)", "download", "implied"),
            ("float(total)", "float(array)", "download", "explicit"),
            ("return jax.device_get(moved)", "jax.device_get", "download", "explicit"),
        ],
    )


def test_an_operator_with_a_single_number_is_not_an_upload():
    array = jnp.ones(3)
    seen = watched(lambda: [array * np.float32(2), array + np.array(1.0), array - 3, array * array])
    assert seen.of("upload") == []
