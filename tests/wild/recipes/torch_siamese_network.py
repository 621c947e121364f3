"""Make `siamese_network/main.py` of pytorch/examples run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = ["--epochs", "1", "--batch-size", "8", "--test-batch-size", "20"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 196  # line of the loop or function whose body is one step
CHANGES = [set_literal("../data", '"data"')]


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "MNIST" / "raw", 240, 40)
