"""Profiles all scripts of one framework in one process and saves their captures and results.

python -m tests.doctor.watch_scripts torch FOLDER
"""

import gc
import json
import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.doctor.expected_diagnoses import is_as_expected
from tests.doctor.repeated_profiling import profile_until_right

from forebay.doctor.capture import step_monitor
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.capture import Capture

SCRIPTS = Path(__file__).parent / "scripts"
NEVER = 1e9  # seconds; the doctor profiles each script to its end, also on a slow machine
UNTIMED = {"seconds": NEVER, "wait_seconds": NEVER, "sample_seconds": NEVER}
ENVIRONMENT = dict(os.environ)
step_monitor.SECONDS = 0.01  # five times as many samples as usual, so that scripts with pauses can be short


def save_capture(script: Path, folder: Path, run: Callable[[Path], dict]) -> None:
    """Save the capture of a script, and its results with and without profiling if they are compared."""
    is_right = partial(is_as_expected, script.parent.name, script.stem)
    capture, result = profile_until_right(lambda: profile(script, run), is_right)
    capture.save(folder / f"{script.stem}.capture")
    if is_compared(script):
        (folder / f"{script.stem}.answers").write_text(json.dumps([result, run(script)]))
        restore()
    gc.collect()


def is_compared(script: Path) -> bool:
    """Whether to run the script again without profiling, to compare its results."""
    framework = script.parent.name
    return framework == "cupy" or (framework == "jax" and not script.stem.endswith("_healthy"))


def profile(script: Path, run: Callable[[Path], dict]) -> tuple[Capture, dict]:
    session = Session(StepDetector(**UNTIMED))
    session.start()
    try:
        result = run(script)
    finally:
        session.stop()
    capture = session.capture(script.name)
    restore()
    return capture, result


def restore() -> None:
    """Restore settings that a script may have changed, because the next script would inherit them."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.run_functions_eagerly(False)
        sys.modules["tensorflow"].debugging.disable_check_numerics()
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_disable_jit", False)
        sys.modules["jax"].config.update("jax_debug_nans", False)
    if "torch" in sys.modules:
        sys.modules["torch"].autograd.set_detect_anomaly(False)


def run_for_answer(script: Path) -> dict:
    """Run a script, and return the value of its variable `answer`."""
    return {"answer": runpy.run_path(str(script), run_name="__main__").get("answer")}


def count_compilations() -> Callable[[Path], dict]:
    """Return a runner for JAX that clears the caches of JAX before a run and counts the compilations."""
    import jax
    from jax import monitoring

    reported: Counter[str] = Counter()
    monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: reported.update([event]))

    def run(script: Path) -> dict:
        jax.clear_caches()
        reported.clear()
        return run_for_answer(script) | {
            "compilations": {name: reported[name] for name in reported if "/jax/core/compile" in name}
        }

    return run


def without_time_limits() -> Callable[[Path], dict]:
    """Raise the time limits of the TensorFlow hooks, which a slow machine would reach; return the usual runner."""
    from forebay.doctor.capture.hooks import op_counter
    from forebay.doctor.capture.hooks.tensorflow import input_waits

    input_waits.MAX_NS = int(NEVER * 1e9)
    op_counter.MAX_CALLING_NS *= 20
    return run_for_answer


def with_two_devices() -> Callable[[Path], dict]:
    """Create two logical CPUs, which some scripts need, before TensorFlow is initialized."""
    import tensorflow as tf

    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
    return without_time_limits()


# Framework -> function that prepares this process and returns the function that runs a script.
RUNNERS = {"jax": count_compilations, "keras": without_time_limits, "tensorflow": with_two_devices}

if __name__ == "__main__":
    framework, folder = sys.argv[1:]
    runner = RUNNERS.get(framework, lambda: run_for_answer)()
    gc.freeze()  # collecting the objects of TensorFlow after each script takes a quarter of a second
    for script in sorted((SCRIPTS / framework).glob("*.py")):
        save_capture(script, Path(folder), runner)
