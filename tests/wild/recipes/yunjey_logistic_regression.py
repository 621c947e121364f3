"""Make `tutorials/01-basics/logistic_regression/main.py` of yunjey/pytorch-tutorial run offline.

Random grey images in place of MNIST, and more epochs.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "10"}
STEP: int | str = 44  # line of the loop or function whose body is one step
CHANGES = [set_literal("../../data", '"data"')]


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "MNIST" / "raw", 60_000, 10_000)
