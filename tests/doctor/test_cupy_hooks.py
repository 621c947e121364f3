"""What the doctor sees of CuPy, with a stand-in for it in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_case_holds(tmp_path):
    libraries = tmp_path / "site-packages"  # by this name it is no code of the user's
    libraries.symlink_to(FOLDER / "stand_in")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "cupy_cases.py")]
    environment = os.environ | {"PYTHONPATH": str(libraries)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
