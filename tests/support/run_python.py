"""Runs Python in a process of its own, and returns what it printed."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["TERMINAL", "Done", "check_python", "run_python"]

TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1"}  # settings with which texts do not depend on the terminal

Done = subprocess.CompletedProcess[str]


def run_python(*arguments: object, cwd: Path | str | None = None, seconds: float = 500, **settings: str) -> Done:
    """Run Python with these arguments for at most `seconds`. `settings` are added to the environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def check_python(*arguments: object, cwd: Path | str | None = None, **settings: str) -> str:
    """Run Python, and return its output. Fail with its errors if it fails."""
    done = run_python(*arguments, cwd=cwd, **settings)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
