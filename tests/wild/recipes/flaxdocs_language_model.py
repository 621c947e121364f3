"""The text of the script, with a smaller model."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    """The script needs no files."""
