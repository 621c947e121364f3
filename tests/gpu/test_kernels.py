"""The CUDA kernels, run alone and, if it is installed, under compute-sanitizer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

CASES = Path(__file__).with_name("kernel_cases.py")


def run(*command):
    return subprocess.run(
        [*command, sys.executable, str(CASES)], capture_output=True, text=True, timeout=300, check=False
    )


def test_kernels_equal_numpy_for_many_row_sizes_addresses_and_counts():
    done = run()
    assert done.returncode == 0, done.stderr
    assert "all rows are right" in done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_no_error(tool):
    found = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH')}:/usr/local/cuda/bin")
    if found is None:
        pytest.skip("compute-sanitizer is not installed")
    done = run(found, "--tool", tool, "--error-exitcode", "9")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "all rows are right" in done.stdout
