"""The environment is part of Gymnasium. An episode has 200 steps."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"total_episodes": "4"}
STEP: int | str = 366


def prepare(folder: Path) -> None:
    """The script needs no files."""
