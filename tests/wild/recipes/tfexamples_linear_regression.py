"""Make `linear_regression.ipynb` of aymericdamien/TensorFlow-Examples run offline.

The script has its own 17 points. The recipe sets more steps.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"training_steps": "20_000"}
STEP: int | str = 48  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
