"""The events that the CuPy hooks record for faulty and healthy scripts. A stand-in replaces CuPy."""

import json

import pytest
from tests.doctor.capture.hooks.hook_scripts import RecordedEvents
from tests.support.paths import DOCTOR

SCRIPTS = sorted(path.stem for path in (DOCTOR / "scripts" / "cupy").glob("*.py"))
FAULTS = ("conversion_in_loop", "host_check", "many_small_copies", "read_back", "rebuilt", "repeated_upload")
FAULTS += ("wide_dtype",)


def seen(framework_processes, script):
    return RecordedEvents.of_capture(framework_processes.capture("cupy", script))


@pytest.mark.parametrize(
    ("script", "kind", "api", "times", "line"),
    [
        ("repeated_upload", "upload", "cupy.asarray", 60, "filtered = cupy.tanh(cupy.asarray(volume) * weight)"),
        ("conversion_in_loop", "upload", "cupy.array", 60, "batch = cupy.array(rows[number % 20 * 32 :][:32])"),
        ("read_back", "download", "float(array)", 60, "residuals.append(float(vector.mean()))"),
        ("rebuilt", "build", "cupy.ElementwiseKernel", 60, "double = cupy.ElementwiseKernel("),
        ("rebuilt", "compile", "cupy", 60, "values = double(values) % 1000.0"),
        ("rebuilt", "run", "cupy.ElementwiseKernel", 60, "values = double(values) % 1000.0"),
        ("host_check", "download", "cupy.asnumpy", 60, "if np.isnan(cupy.asnumpy(field)).any():"),
        ("wide_dtype", "upload", "cupy.asarray", 60, "batch = cupy.asarray(rows)"),
        ("many_small_copies", "upload", "cupy.asarray", 960, "batch = cupy.stack([cupy.asarray(row) for row in "),
        ("many_small_copies", "sync", "cupy.cuda.Stream.synchronize", 60, "cupy.cuda.Stream.null.synchronize()"),
    ],
)
def test_a_fault_is_recorded_with_its_line(framework_processes, script, kind, api, times, line):
    found = seen(framework_processes, script)
    assert [found.text(event).startswith(line) for event in found.of(kind, api)].count(True) == times


@pytest.mark.parametrize("script", FAULTS)
@pytest.mark.parametrize("kind", ["upload", "download", "build", "compile", "sync"])
def test_a_healthy_script_records_at_most_two_such_events(framework_processes, script, kind):
    assert len(seen(framework_processes, f"{script}_healthy").of(kind)) <= 2


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_profiled_script_has_the_same_result(framework_processes, script):
    profiled, plain = json.loads(framework_processes.script_result("cupy", script, "answers").read_text())
    assert profiled == plain


def test_the_same_data_has_the_same_key(framework_processes):
    assert len(set(seen(framework_processes, "repeated_upload").details("upload", "key"))) == 1
