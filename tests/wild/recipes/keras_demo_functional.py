"""Make `examples/demo_functional.py` of keras-team/keras run offline.

The script makes its own random arrays, here with fewer rows.
"""

from pathlib import Path

from tests.wild.edits import set_literal

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"epochs": "2"}
STEP: int | str = "fit"
CHANGES = [set_literal(50000, "4000")]


def prepare(folder: Path) -> None:
    """The script needs no files."""
