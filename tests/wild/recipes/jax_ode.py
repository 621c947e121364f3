"""The points of the script."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = True


def prepare(folder: Path) -> None:
    """The script needs no files."""
