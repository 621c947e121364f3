"""The environment of Gymnasium."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    """The script needs no files."""
