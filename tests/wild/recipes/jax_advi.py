"""The script draws its own samples."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 135


def prepare(folder: Path) -> None:
    """The script needs no files."""
