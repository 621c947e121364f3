"""Make `tutorial-contents/503_dropout.py` of MorvanZhou/PyTorch-Tutorial run offline.

The script makes its own points. The recipe sets more steps.
"""

from pathlib import Path

from tests.wild.edits import set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 59  # line of the loop or function whose body is one step
CHANGES = [set_range("t", 2000)]


def prepare(folder: Path) -> None:
    """The script needs no files."""
