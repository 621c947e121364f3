"""Make `docs/examples/train_rnn.ipynb` of patrick-kidger/equinox run offline.

The notebook makes its own spirals. The recipe sets more steps.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"steps": "20_000"}
STEP: int | str = 97  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
