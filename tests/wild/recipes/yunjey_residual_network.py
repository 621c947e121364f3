"""Make `tutorials/02-intermediate/deep_residual_network/main.py` of yunjey/pytorch-tutorial run offline.

Random colour images in place of CIFAR-10, with batches of ten.
"""

from pathlib import Path

from tests.wild.edits import call_instead, set_literal
from tests.wild.made_up import write_cifar

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "1", "batch_size": "10"}
STEP: int | str = 132  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("CIFAR10", '__import__("unchecked").CIFAR10'),
    set_literal("../../data/", '"data"'),
]


def prepare(folder: Path) -> None:
    write_cifar(folder, 1500, 100)
