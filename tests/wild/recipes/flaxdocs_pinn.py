"""Make `examples/scientific/pinn_oscillator.py` of mlnomadpy/flaxdocs run offline.

The script makes its own training points.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"EPOCHS": "300"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 167  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
