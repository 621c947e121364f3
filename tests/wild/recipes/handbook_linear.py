"""Make `docs/_static/code/zh/model/custom/linear.py` of snowkylin/tensorflow-handbook run offline.

The script has its own two rows of numbers. The recipe sets more steps.
"""

from pathlib import Path

from tests.wild.edits import set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 46  # line of the loop or function whose body is one step
CHANGES = [set_range("i", 2000)]


def prepare(folder: Path) -> None:
    """The script needs no files."""
