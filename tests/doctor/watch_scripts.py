"""Runs all scripts of one framework under watch, in one process, and keeps of each the capture and what it came to.

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

from tests.doctor.expected import as_expected
from tests.doctor.undisturbed import undisturbed

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.capture import Capture

SCRIPTS = Path(__file__).parent / "scripts"
# Seconds of patience, all of them watched: whatever the machine does, a short script is seen to its end.
NEVER = 1e9
UNTIMED = {"seconds": NEVER, "wait_seconds": NEVER, "sample_seconds": NEVER}
ENVIRONMENT = dict(os.environ)
COMPARED = ("jax", "cupy")  # whose scripts end with an answer: they are run a second time, without a watch


def keep(script: Path, folder: Path, run: Callable[[Path], dict]) -> None:
    right = partial(as_expected, script.parent.name, script.stem)
    capture, watched = undisturbed(lambda: see(script, run), right)
    capture.save(folder / f"{script.stem}.capture")
    if script.parent.name in COMPARED:
        (folder / f"{script.stem}.answers").write_text(json.dumps([watched, run(script)]))
        restore()
    gc.collect()


def see(script: Path, run: Callable[[Path], dict]) -> tuple[Capture, dict]:
    session = Session(StepDetector(**UNTIMED))
    session.start()
    try:
        watched = run(script)
    finally:
        session.stop()
    capture = session.capture(script.name)
    restore()
    return capture, watched


def restore() -> None:
    """Settings that a script has changed would be the next one's."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.run_functions_eagerly(False)
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_disable_jit", False)


def answer(script: Path) -> dict:
    return {"answer": runpy.run_path(str(script), run_name="__main__").get("answer")}


def answer_of_jax() -> Callable[[Path], dict]:
    """And how often JAX has traced and compiled for it, by its own account, if nothing is left of those before."""
    import jax
    from jax import monitoring

    heard: Counter[str] = Counter()
    monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: heard.update([event]))

    def run(script: Path) -> dict:
        jax.clear_caches()
        heard.clear()
        return answer(script) | {"compilations": {name: heard[name] for name in heard if "/jax/core/compile" in name}}

    return run


def recorded_to_its_end() -> Callable[[Path], dict]:
    """TensorFlow's own record of a script would end after some seconds; and what calls operations is slow like all."""
    from forebay.doctor.capture.hooks import op_counter
    from forebay.doctor.capture.hooks.tensorflow import input_waits

    input_waits.MAX_NS = int(NEVER * 1e9)
    op_counter.MAX_CALLING_NS *= 20
    return answer


def with_two_devices() -> Callable[[Path], dict]:
    """Some of TensorFlow's scripts want two logical CPUs, which must be made before anything runs."""
    import tensorflow as tf

    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
    return recorded_to_its_end()


RUNNERS = {"jax": answer_of_jax, "keras": recorded_to_its_end, "tensorflow": with_two_devices}

if __name__ == "__main__":
    framework, folder = sys.argv[1:]
    runner = RUNNERS.get(framework, lambda: answer)()
    for script in sorted((SCRIPTS / framework).glob("*.py")):
        keep(script, Path(folder), runner)
