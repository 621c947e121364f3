"""The script makes its own random arrays."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 58


def prepare(folder: Path) -> None:
    """The script needs no files."""
