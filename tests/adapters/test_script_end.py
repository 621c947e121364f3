"""A script may end while frameworks hold memory of Forebay."""

import os
import subprocess
import sys

import pytest

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
SCRIPT = """
import numpy as np, forebay as fb
cached = np.zeros((100, 10), np.float32)
fb.upload_once(cached, {framework!r})
feed = fb.from_arrays(np.zeros((1000, 10), np.float32)).batch(10).feed({framework!r})
live_batches = [batch for _, batch in zip(range(50), feed)]
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_script_may_end_with_cached_arrays_and_live_batches(framework):
    command = [sys.executable, "-c", SCRIPT.format(framework=framework)]
    done = subprocess.run(command, env=os.environ | QUIET, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
