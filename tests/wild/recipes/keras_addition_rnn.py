"""Make `examples/nlp/addition_rnn.py` of keras-team/keras-io run offline.

The script makes its own sums. It trains for two rounds, with a fifth of the sums.
"""

from pathlib import Path

from tests.wild.edits import set_literal

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"TRAINING_SIZE": "10000"}
STEP: int | str = "fit"
CHANGES = [set_literal(30, "3")]


def prepare(folder: Path) -> None:
    """The script needs no files."""
