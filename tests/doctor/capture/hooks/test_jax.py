"""The events that the JAX hooks record for each faulty script and for its healthy twin."""

import json

import pytest
from tests.doctor.capture.hooks.hook_scripts import RecordedEvents
from tests.support.paths import DOCTOR

SCRIPTS = sorted(path.stem for path in (DOCTOR / "scripts" / "jax").glob("*.py"))


def seen(framework_processes, script):
    return RecordedEvents.of_capture(framework_processes.capture("jax", script))


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
def test_a_fault_is_recorded_with_its_line(framework_processes, script, kind, api, times, line):
    found = seen(framework_processes, script)
    assert [found.text(event).startswith(line) for event in found.of(kind, api)].count(True) == times


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
def test_a_healthy_script_records_at_most_two_such_events(framework_processes, script, kind):
    assert len(seen(framework_processes, f"{script}_healthy").of(kind)) <= 2


@pytest.mark.parametrize("script", ["rebuilt", "retracing", "retracing_value"])
def test_a_healthy_script_has_one_first_compilation(framework_processes, script):
    assert seen(framework_processes, f"{script}_healthy").details("compile", "reason").count("first") == 1


@pytest.mark.parametrize("script", [script for script in SCRIPTS if not script.endswith("_healthy")])
def test_a_profiled_script_has_the_same_result_and_number_of_compilations(framework_processes, script):
    profiled, plain = json.loads(framework_processes.script_result("jax", script, "answers").read_text())
    assert profiled == plain
    assert profiled["compilations"]


def test_the_same_data_has_the_same_key(framework_processes):
    assert len(set(seen(framework_processes, "repeated_upload").details("upload", "key", "jax.jit: step(table)"))) == 1


def test_different_data_has_different_keys(framework_processes):
    assert len(set(seen(framework_processes, "wide_dtype").details("upload", "key", "jax.jit: step(batch)"))) == 120


def test_narrowed_data_records_its_original_dtype(framework_processes):
    found = seen(framework_processes, "wide_dtype")
    assert set(found.details("upload", "from_dtype", "jax.jit: step(batch)")) == {"float64"}
    assert set(found.details("upload", "dtype", "jax.jit: step(batch)")) == {"float32"}


def test_the_bytes_of_an_upload_are_those_on_the_device(framework_processes):
    assert {event.nbytes for event in seen(framework_processes, "wide_dtype").of("upload")} == {512 * 784 * 4}


@pytest.mark.parametrize(("script", "reason"), [("retracing", "shape"), ("retracing_value", "value")])
def test_a_compilation_records_its_reason_and_signature(framework_processes, script, reason):
    events = [event.detail for event in seen(framework_processes, script).of("compile") if "reason" in event.detail]
    assert [detail["reason"] for detail in events] == ["first"] + [reason] * (len(events) - 1)
    assert len({detail["signature"] for detail in events}) == len(events)
