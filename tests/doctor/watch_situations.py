"""Runs the scripts of situations/ under watch, those of a mode in one process, and writes what the doctor says of each.

python -m tests.doctor.watch_situations eager FILE.json    # or session: TensorFlow's first version, eager switched off
"""

import gc
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from tests.doctor.situation_snapshots import SITUATIONS, compared, kept, mode_of
from tests.doctor.undisturbed import undisturbed
from tests.doctor.watch_scripts import UNTIMED, recorded_to_its_end

from forebay.doctor.capture.run_script import run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.model.capture import Capture

ON_GPU = bool(tf.config.list_physical_devices("GPU"))  # which is recorded once the steps are steady


def diagnosis_of(script: Path) -> Diagnosis:
    capture, _ = undisturbed(lambda: (see(script), None), partial(as_decided, script.stem))
    return diagnose(capture)


def as_decided(name: str, capture: Capture) -> bool:
    snapshot = kept()[name]["gpu" if ON_GPU else "cpu"]
    return compared(told(diagnose(capture)), snapshot) == snapshot


def see(script: Path) -> Capture:
    tf.compat.v1.reset_default_graph()
    gc.collect()
    session = Session(StepDetector() if ON_GPU else StepDetector(**UNTIMED))
    session.start()
    try:
        ended = run_script(str(script), ())
    finally:
        session.stop()
    return session.capture(script.name, ended=ended)


def told(diagnosis: Diagnosis) -> dict[str, Any]:
    """What of a verdict does not depend on how fast the machine is."""
    return {
        "loop": diagnosis.view.steps is not None,
        "findings": [(finding.rule, finding.line.text if finding.line else None) for finding in diagnosis.findings],
        "ended": diagnosis.view.capture.ended,
        "silent": list(diagnosis.failures),
    }


def with_a_second_device() -> None:
    """Without a GPU a second CPU stands for it: what is placed apart must move there too."""
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)


if __name__ == "__main__":
    mode, file = sys.argv[1:]
    if mode == "eager" and not ON_GPU:
        with_a_second_device()
        recorded_to_its_end()
    scripts = [script for script in sorted(SITUATIONS.glob("s*.py")) if mode_of(script.stem) == mode]
    Path(file).write_text(json.dumps({script.stem: told(diagnosis_of(script)) for script in scripts}))
