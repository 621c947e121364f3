"""Make `examples/structured_data/imbalanced_classification.py` of keras-team/keras-io run offline.

Random card transactions, as many as the real ones. Some rows occur again.
"""

from pathlib import Path

from tests.wild.made_up import write_transactions

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"fname": '"creditcard.csv"', "epochs": "4"}
STEP: int | str = "fit"


def prepare(folder: Path) -> None:
    write_transactions(folder / "creditcard.csv", 284_807)
