"""Keras chooses its backend when it is imported: the cases run once in a process of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("keras_cases.py")
pytestmark = pytest.mark.timeout(600)  # frameworks are imported


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_takes_a_feed_on(backend, tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    # Most cases compile the same small model again, which JAX need not do more than once.
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
