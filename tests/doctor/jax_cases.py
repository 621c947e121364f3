"""What the ledger holds of scripts that use JAX. Run by test_jax_hooks, in a process of its own with two devices."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import monitoring
from jax._src.array import ArrayImpl
from tests.doctor.hook_scripts import bare_script, watched, watched_script

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Stepping

FAULTS = ("conversion_in_loop", "host_check", "many_small_copies", "read_back", "rebuilt", "repeated_upload")
FAULTS += ("retracing", "retracing_value", "wide_dtype")
COMPILED = "/jax/core/compile/backend_compile_duration"
TRACED = "/jax/core/compile/jaxpr_trace_duration"


@pytest.mark.parametrize(
    ("script", "kind", "api", "times", "line"),
    [
        ("repeated_upload", "upload", "jax.jit: step(table)", 120, "weights = step(weights, table, number)"),
        ("conversion_in_loop", "upload", "jnp.array", 100, "weights = step(weights, jnp.array(batch))"),
        ("read_back", "download", "float(array)", 60, "total += float(loss)"),
        ("retracing", "compile", "jax.jit", 16, "vectors = [embed(table, np.arange(length)) for length in lengths]"),
        ("retracing_value", "compile", "jax.jit", 20, "weights = step(weights, rate=0.1 / (1 + number))"),
        ("rebuilt", "build", "jax.jit", 20, "step = jax.jit(lambda weights: weights - 0.1 * jnp.tanh(weights))"),
        ("rebuilt", "compile", "jax.jit", 20, "weights = step(weights)"),
        ("host_check", "download", "jax.device_get", 40, "if np.isnan(jax.device_get(activations)).any():"),
        ("wide_dtype", "upload", "jax.jit: step(batch)", 120, "weights = step(weights, batch)"),
        ("many_small_copies", "upload", "jnp.asarray", 1600, "rows = [jnp.asarray(row) for row in "),
        ("read_back", "run", "jax.jit", 60, "weights, loss = step(weights, images, "),
    ],
)
def test_a_fault_is_written_down_with_its_line(script, kind, api, times, line):
    seen = watched_script(f"jax/{script}")
    assert [seen.text(event).startswith(line) for event in seen.of(kind, api)].count(True) == times


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("conversion_in_loop", "upload"),
        ("host_check", "download"),
        ("read_back", "download"),
        ("rebuilt", "build"),
        ("repeated_upload", "upload"),
        ("retracing", "build"),
        ("retracing_value", "build"),
        ("wide_dtype", "upload"),
    ],
)
def test_a_healthy_script_does_it_once_or_twice_in_all(script, kind):
    assert len(watched_script(f"jax/{script}_healthy").of(kind)) <= 2


@pytest.mark.parametrize("script", ["rebuilt", "retracing", "retracing_value"])
def test_a_healthy_script_is_compiled_for_once(script):
    assert watched_script(f"jax/{script}_healthy").details("compile", "reason").count("first") == 1


@pytest.mark.parametrize("script", FAULTS)
def test_a_watched_script_comes_to_the_same_result_by_as_many_compilations(script):
    compiled = []

    def listen(event, seconds, **_):
        compiled.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    jax.clear_caches()
    bare = bare_script(f"jax/{script}")
    compiled_bare = compiled[:]
    compiled.clear()
    jax.clear_caches()
    seen = watched(lambda: bare_script(f"jax/{script}"))
    monitoring.unregister_event_duration_listener(listen)
    assert seen.result == bare
    assert compiled.count(COMPILED) == compiled_bare.count(COMPILED)
    assert compiled.count(TRACED) == compiled_bare.count(TRACED)


def test_the_same_data_has_the_same_key():
    assert len(set(watched_script("jax/repeated_upload").details("upload", "key", "jax.jit: step(table)"))) == 1


def test_fresh_data_has_fresh_keys():
    assert len(set(watched_script("jax/wide_dtype").details("upload", "key", "jax.jit: step(batch)"))) == 120


def test_narrowed_data_tells_what_it_was():
    seen = watched_script("jax/wide_dtype")
    assert set(seen.details("upload", "from_dtype", "jax.jit: step(batch)")) == {"float64"}
    assert set(seen.details("upload", "dtype", "jax.jit: step(batch)")) == {"float32"}


def test_bytes_are_those_that_arrive():
    assert {event.nbytes for event in watched_script("jax/wide_dtype").of("upload")} == {512 * 784 * 4}


@pytest.mark.parametrize(("script", "reason"), [("retracing", "shape"), ("retracing_value", "value")])
def test_a_compilation_tells_its_function_and_its_reason(script, reason):
    events = [event.detail for event in watched_script(f"jax/{script}").of("compile") if "reason" in event.detail]
    assert [detail["reason"] for detail in events] == ["first"] + [reason] * (len(events) - 1)
    assert len({detail["signature"] for detail in events}) == len(events)


def test_a_changed_type_is_a_reason():
    def run():
        twice = jax.jit(lambda x: x * 2)
        return twice(np.ones(3, np.float32)), twice(np.ones(3, np.int32))

    assert watched(run).details("compile", "reason", "jax.jit") == ["first", "dtype"]


def test_arrays_that_are_compiled_in_are_counted():
    table = np.ones((1000, 100), np.float32)
    seen = watched(lambda: jax.jit(lambda x: (x + table).sum())(np.float32(1)))
    assert seen.details("compile", "constants_nbytes") == [table.nbytes]


def test_data_inside_a_tree_is_an_upload_of_the_argument():
    def run():
        step = jax.jit(lambda weights, batch: weights + batch["x"].sum())
        return step(jnp.ones(3), {"x": np.ones((64, 64), np.float32), "y": [np.ones(8, np.int32)]})

    seen = watched(run)
    assert [event.nbytes for event in seen.of("upload", "jax.jit: <lambda>(batch)")] == [64 * 64 * 4 + 8 * 4]


def test_trees_of_device_arrays_are_no_uploads():
    weights = {"w": jnp.ones((3, 3)), "b": jnp.ones(3)}

    def run():
        step = jax.jit(lambda weights: jax.tree.map(lambda each: each * 2, weights))
        return [step(weights) for _ in range(40)]

    assert watched(run).of("upload") == []


def test_data_that_comes_late_in_a_tree_is_found_before_long():
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
def test_every_way_to_read_an_array_is_one_download(read, api):
    array = jnp.ones(())
    downloads = watched(lambda: read(array)).of("download")
    assert [(event.api, event.nbytes, event.detail["device"]) for event in downloads] == [(api, 4, "cpu:0")]


def test_an_index_is_a_download():
    array = jnp.ones((), jnp.int32)
    assert [event.api for event in watched(lambda: [1, 2][array]).of("download")] == ["index(array)"]


def test_numpy_reads_an_array_of_two_devices_in_sight():
    array = jax.device_put(jnp.ones((4, 4)), _over_two_devices())
    assert [event.api for event in watched(lambda: np.isnan(array)).of("download")] == ["np.asarray(array)"]


def test_what_numpy_reads_unseen_is_a_note():
    assert any("np.asarray" in note for note in watched(lambda: jnp.ones(3)).notes)


def test_a_tree_that_is_fetched_is_one_download():
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
def test_every_way_to_make_an_array_of_host_data_is_an_upload(put, api, from_dtype):
    data = np.ones((64, 64))
    uploads = watched(lambda: put(data)).of("upload")
    assert [(event.api, event.detail["from_dtype"]) for event in uploads] == [(api, from_dtype)]


@pytest.mark.parametrize("make", [lambda array: jnp.array(array), lambda array: jnp.array([array, array])])
def test_what_is_made_of_device_arrays_is_no_upload(make):
    array = jnp.ones(3)
    assert watched(lambda: make(array)).of("upload") == []


def test_an_array_put_on_another_device_moves():
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
def test_a_wait_that_was_asked_for_is_one_event(wait, api):
    array = jnp.ones(3)
    assert [event.api for event in watched(lambda: wait(array)).of("sync")] == [api]


def test_hooks_are_undone():
    owners = (jax, jnp, ArrayImpl, jax.stages.Compiled)
    before = [dict(vars(owner)) for owner in owners]
    listeners = monitoring.get_event_duration_listeners()
    watched(lambda: jax.jit(lambda x: x)(np.ones(3)))
    assert [dict(vars(owner)) for owner in owners] == before
    assert monitoring.get_event_duration_listeners() == listeners


def test_a_function_outlives_the_watch_and_is_silent():
    seen = watched(lambda: jax.jit(lambda x: x * 2))
    silent = watched(lambda: seen.result(np.ones(3)))
    assert silent.of("run") == []


def test_functions_that_a_notebook_has_jitted_before_are_watched_by_name(monkeypatch):
    earlier = jax.jit(lambda x: x * 2)
    monkeypatch.setattr("__main__.earlier", earlier, raising=False)
    seen = watched(lambda: sys.modules["__main__"].earlier(np.ones(3)))
    assert len(seen.of("run")) == 1
    assert any(note.startswith("earlier was jitted before") for note in seen.notes)
    assert sys.modules["__main__"].earlier is earlier


def test_what_a_notebook_names_anew_meanwhile_stays_so(monkeypatch):
    monkeypatch.setattr("__main__.earlier", jax.jit(lambda x: x * 2), raising=False)
    watched(lambda: monkeypatch.setattr("__main__.earlier", "something else"))
    assert sys.modules["__main__"].earlier == "something else"


def test_steps_are_timed_with_all_other_hooks_off():
    session = Session(Stepping(warm_up=2, steps=5, untraced_steps=5, patience_seconds=0.0))
    session.start()
    bare_script("jax/repeated_upload")
    session.stop()
    capture = session.capture("repeated_upload.py")
    late = [event for event in capture.events if event.start > capture.window.end]
    assert len(capture.window.untraced) == 5
    assert {(event.kind, event.api) for event in late} == {("run", "jax.jit")}


def _over_two_devices():
    return jax.sharding.NamedSharding(jax.make_mesh((2,), ("rows",)), jax.sharding.PartitionSpec("rows"))
