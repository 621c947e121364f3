"""Make `ODE.py` of JRowbottomGit/Deep-BSDE-Solver run offline.

The script makes its own training points.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 53  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
