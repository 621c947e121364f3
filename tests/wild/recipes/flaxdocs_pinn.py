"""The script makes its own points."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"EPOCHS": "300"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 167


def prepare(folder: Path) -> None:
    """The script needs no files."""
