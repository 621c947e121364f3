"""Make a script of yunjey/pytorch-tutorial run offline.

Random grey images in place of MNIST, a quarter of the original number.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "1"}
STEP: int | str = 70  # line of the loop or function whose body is one step
CHANGES = [set_literal("../../data/", '"data/"')]


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "MNIST" / "raw", 15_000, 1000)
