"""The doctor on a real GPU, for the framework in FOREBAY_FRAMEWORK.

test_doctor.py runs this file once for each framework, in its own process, because frameworks conflict in one process.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.support.restored_interpreter import restored_interpreter  # noqa: F401 (an autouse fixture)

from forebay.doctor.capture.profiled_run import RunRequest, run_profiled
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.report.terminal import render

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
FOLDER = Path(__file__).parent.parent / "doctor" / "cures"
SHORT_RUN = {"warm_up": 5, "steps": 30, "wait_seconds": 0.25}
MiB = 1 << 20


class Fault(NamedTuple):
    """A script, its expected finding and its expected uploads."""

    script: str
    rule: str
    line: str
    nbytes: int
    pageable: bool  # whether the device copies the data from pageable memory, not from page-locked memory


FAULTS = {
    "torch": [
        Fault("pageable_upload", "pageable_upload", "window = recording[start", 32 * MiB, True),
        Fault("overlap", "copy_not_overlapped", "window = recording[start", 32 * MiB, False),
    ],
    "tensorflow": [Fault("conversion_in_loop", "conversion_in_loop", "batch = tf.convert_to_tensor(", 16 * MiB, True)],
    "jax": [
        Fault("repeated_upload", "repeated_upload", "offsets = jnp.asarray(positions)", 32 * MiB, False),
    ],
    "cupy": [Fault("repeated_upload", "repeated_upload", "offsets = cupy.asarray(positions)", 32 * MiB, False)],
}[FRAMEWORK]
FAULT = FAULTS[0]

# PyTorch 2.11 warns at every use of its profiler; the tests do not depend on this warning.
ignore_profiler_warning = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
only_torch = pytest.mark.skipif(FRAMEWORK != "torch", reason="only for PyTorch")
only_tensorflow = pytest.mark.skipif(FRAMEWORK != "tensorflow", reason="only for TensorFlow")


def profile_script(script):
    """Profile a script until it has enough steps, and return the capture."""
    session = Session(StepDetector(**SHORT_RUN), on_enough=sys.exit)
    return run_profiled(RunRequest(str(FOLDER / FRAMEWORK / f"{script}.py")), session)


@pytest.fixture(scope="module", autouse=True)
def stopwatch():
    """Let the scripts import `stopwatch`, which is in another folder. At the end, restore `__main__`."""
    main = sys.modules["__main__"]
    sys.path.append(str(FOLDER / "timing"))
    yield
    sys.path.remove(str(FOLDER / "timing"))
    sys.modules["__main__"] = main


@pytest.fixture(scope="module", params=FAULTS, ids=[fault.script for fault in FAULTS])
def case(request):
    """Diagnose each script once, for all tests."""
    return request.param, diagnose(profile_script(request.param.script))


def test_the_script_ran_and_every_rule_could_run(case):
    _, diagnosis = case
    assert diagnosis.view.capture.ended == "done"
    assert diagnosis.failures == ()
    assert not any("GPU" in note for note in diagnosis.view.capture.notes)


def test_the_device_is_recorded_with_the_names_of_its_kernels(case):
    _, diagnosis = case
    device_view = diagnosis.view.device
    assert device_view is not None
    assert device_view.kernels_per_step >= 1
    assert any(
        "gemm" in device_view.names[number] or "fusion" in device_view.names[number]
        for number in device_view.kernels["name"]
    )
    assert diagnosis.view.capture.device.dropped == 0


def test_uploads_have_their_size_and_memory_kind(case):
    fault, diagnosis = case
    records = diagnosis.view.capture.device.records
    sent = records[(records["kind"] == RecordKind.MEMCPY) & (records["what"] == CopyKind.HOST_TO_DEVICE)]
    largest = sent[sent["nbytes"].argmax()]
    assert largest["nbytes"] == fault.nbytes
    assert (largest["source"] == MemoryKind.PAGEABLE) == fault.pageable


def test_uploads_have_their_line(case):
    fault, diagnosis = case
    device_view = diagnosis.view.device
    is_upload = ~device_view.is_kernel & (device_view.operations["what"] == CopyKind.HOST_TO_DEVICE)
    largest = np.where(is_upload, device_view.operations["nbytes"], 0).argmax()
    assert diagnosis.view.line(device_view.lines[largest]).text.startswith(fault.line)


def test_at_least_95_percent_of_the_bytes_in_each_direction_have_a_line(case):
    _, diagnosis = case
    shares = [diagnosis.view.device.coverage(direction) for direction in ("host to device", "device to host")]
    assert min(share for share in shares if share is not None) >= 0.95


def test_the_main_finding_reports_the_fault_and_its_line(case):
    fault, diagnosis = case
    assert diagnosis.main.rule == fault.rule
    assert diagnosis.main.line.text.startswith(fault.line)


def test_the_report_shows_the_cost_of_profiling(case):
    _, diagnosis = case
    assert diagnosis.view.profiling_overhead is not None
    assert "unprofiled steps" in " ".join(render(diagnosis, width=80).plain.split())


@only_torch
@ignore_profiler_warning
def test_a_torch_profiler_keeps_its_records_and_a_note_says_that_it_uses_cupti():
    import torch

    with torch.profiler.profile() as profile:
        capture = profile_script(FAULT.script)
    assert capture.device is None
    assert any("torch.profiler uses CUPTI" in note for note in capture.notes)
    assert diagnose(capture).main is not None
    assert kernels_in(profile)


@only_torch
@ignore_profiler_warning
def test_a_torch_profiler_works_after_a_watch():
    import torch

    assert profile_script(FAULT.script).device is not None
    square = torch.ones(512, 512, device="cuda")
    with torch.profiler.profile() as profile:
        square @ square
        torch.cuda.synchronize()
    assert kernels_in(profile)


@only_tensorflow
def test_a_tensorflow_profiler_keeps_its_records_and_a_note_says_that_it_uses_cupti(tmp_path):
    import tensorflow as tf

    tf.profiler.experimental.start(str(tmp_path))
    try:
        capture = profile_script(FAULT.script)
    finally:
        tf.profiler.experimental.stop()
    assert capture.device is None
    assert any("tf.profiler uses CUPTI" in note for note in capture.notes)
    assert diagnose(capture).main is not None
    assert [*tmp_path.rglob("*.xplane.pb")]


def kernels_in(profile):
    """Return the device events that the profiler recorded."""
    from torch.autograd import DeviceType

    return [event for event in profile.events() if event.device_type == DeviceType.CUDA]
