"""The sentences of the script."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"EPOCHS": "60"}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = True


def prepare(folder: Path) -> None:
    """The script needs no files."""
