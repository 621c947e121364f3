"""Make `4-3.Bi-LSTM(Attention)/Bi-LSTM(Attention).py` of graykode/nlp-tutorial run offline.

The script contains its six sentences.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 64  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
