"""Cures tried by emulation: what it does in each framework, which one belongs to a finding, and what is told of it."""

import os
import subprocess
import sys

import pytest
from tests.doctor.report import report_samples as samples
from tests.support.paths import DOCTOR

pytestmark = pytest.mark.timeout(600)  # frameworks are imported, twice in some
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "NO_COLOR": "1"}
SETTINGS |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "COLUMNS": "80"}
STALE_VALUES_FAIL = """
import cupy
total, before = cupy.ones(1).sum(), 0.0
for _ in range(60):
    total = total + 1.0
    value = float(total)
    if value <= before:
        raise ValueError("it does not grow")
    before = value
"""
NO_LOOP = """
import cupy
cupy.asarray([1.0])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """With a stand-in for CuPy, in a folder by whose name it is no code of the user's."""
    libraries = tmp_path_factory.mktemp("libraries") / "site-packages"
    libraries.symlink_to(DOCTOR / "stand_in")
    return os.environ | SETTINGS | {"PYTHONPATH": str(libraries)}


def run(*arguments, environment, cwd):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=500, check=False, errors="replace"
    )


def verify(*arguments, environment, cwd):
    return run("-m", "forebay", "doctor", "--verify", *arguments, environment=environment, cwd=cwd)


def test_a_capture_cannot_be_run_again(environment, tmp_path):
    samples.ordinary().view.capture.save(tmp_path / "run.gz")
    done = verify("run.gz", environment=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "run.gz is a capture" in " ".join(done.stderr.split())
