"""Make `examples/sequence/word2vec.py` of mlnomadpy/flaxdocs run offline.

The script contains its sentences.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"EPOCHS": "60"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 234  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""
