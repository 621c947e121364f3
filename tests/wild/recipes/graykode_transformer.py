"""The one sentence of the script, with a smaller model."""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"d_model": "128", "d_ff": "256", "n_layers": "2"}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    """The script needs no files."""
