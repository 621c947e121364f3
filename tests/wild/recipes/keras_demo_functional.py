"""The random arrays of the script, with fewer rows."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"epochs": "2"}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    """The script needs no files."""
