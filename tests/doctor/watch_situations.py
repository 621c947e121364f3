"""Profiles all scripts of one mode in situations/ in one process, and writes their diagnoses.

python -m tests.doctor.watch_situations eager FILE.json    # or session: TensorFlow 1 without eager execution
"""

import gc
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from tests.doctor.repeated_profiling import profile_until_right
from tests.doctor.situation_snapshots import SITUATIONS, load_snapshots, mode_of, to_snapshot
from tests.doctor.watch_scripts import UNTIMED, without_time_limits

from forebay.doctor.capture.run_script import run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.rules import placement

# On a GPU, the default limits apply, because the doctor records the device only after some steps.
ON_GPU = bool(tf.config.list_physical_devices("GPU"))


def diagnosis_of(script: Path) -> Diagnosis:
    capture, _ = profile_until_right(lambda: (profile(script), None), partial(equals_snapshot, script.stem))
    return diagnose(capture)


def equals_snapshot(name: str, capture: Capture) -> bool:
    snapshot = load_snapshots()[name]["gpu" if ON_GPU else "cpu"]
    return to_snapshot(summary_of(diagnose(capture)), snapshot) == snapshot


def profile(script: Path) -> Capture:
    tf.compat.v1.reset_default_graph()
    gc.collect()
    session = Session(StepDetector() if ON_GPU else StepDetector(**UNTIMED))
    session.start()
    try:
        ended = run_script(str(script), ())
    finally:
        session.stop()
    return session.capture(script.name, ended=ended)


def summary_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the parts of a diagnosis that do not depend on the speed of the machine."""
    return {
        "loop": diagnosis.view.steps is not None,
        "findings": [(finding.rule, finding.line.text if finding.line else None) for finding in diagnosis.findings],
        "ended": diagnosis.view.capture.ended,
        "failures": list(diagnosis.failures),
    }


def with_a_second_device() -> None:
    """Create a second logical CPU that stands for a GPU, so that placed operations move data."""
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)


def with_a_slow_link() -> None:
    """Make the estimated copies inside graphs eight times slower.

    On a machine without a GPU, the host computes the rest of the step more slowly than a GPU. Without this factor, the
    copies would have a smaller share of the step than on a GPU.
    """
    placement.PAGEABLE_BYTES_PER_SECOND /= 8


if __name__ == "__main__":
    mode, file = sys.argv[1:]
    gc.freeze()  # collecting the objects of TensorFlow before each script takes a quarter of a second
    if not ON_GPU:
        with_a_slow_link()
    if mode == "eager" and not ON_GPU:
        with_a_second_device()
        without_time_limits()
    scripts = [script for script in sorted(SITUATIONS.glob("s*.py")) if mode_of(script.stem) == mode]
    Path(file).write_text(json.dumps({script.stem: summary_of(diagnosis_of(script)) for script in scripts}))
