"""Runs cases and scripts in their own processes, because frameworks conflict in one process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# JAX and TensorFlow then allocate memory on demand and leave the rest of the GPU to other processes.
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
FRAMEWORKS = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed"))
    for name in ("torch", "jax", "tensorflow", "cupy")
]


def run_cases(cases, framework, **settings):
    """Run all tests of a file for one framework, in a process with these environment variables.

    Without SHARING, JAX and TensorFlow preallocate most of the device memory.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    done = _run(command, {"FOREBAY_FRAMEWORK": framework} | settings, seconds=580)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def run_script(script):
    done = _run([sys.executable, "-c", script], SHARING, seconds=100)
    assert done.returncode == 0, done.stderr


def _run(command, settings, *, seconds):
    environment = {name: value for name, value in os.environ.items() if name not in SHARING}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "2"} | settings
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
