"""Keras's hooks on every backend, each in a process of its own: what they write, and that they change nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "keras_cases.py"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_all_cases_hold(backend):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        env=os.environ | QUIET | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
