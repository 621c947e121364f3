"""What the doctor sees of JAX, on two host devices in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize("cases", ["jax_cases.py", "jax_usage_cases.py"])
def test_every_case_holds(cases):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / cases)]
    done = subprocess.run(command, env=os.environ | DEVICES, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
