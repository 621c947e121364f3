"""Make `examples/training/language_model.py` of mlnomadpy/flaxdocs run offline.

The script makes its own text. The recipe sets a smaller model.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"d_model": "32", "num_layers": "1", "d_ff": "64", "num_epochs": "1", "max_length": "2"}
STEP: int | str = 414  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
