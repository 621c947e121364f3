"""The parts of the bench that need a framework, each framework in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def run_cases(file: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / file)]
    return subprocess.run(
        command, env=os.environ | QUIET | environment, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_every_framework_receives_and_trains_alike(framework):
    done = run_cases("device_cases.py", FOREBAY_FRAMEWORK=framework)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_fit_is_timed_on_every_backend(backend):
    done = run_cases("keras_fit_cases.py", KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
