"""Make `implementations/wgan_gp/wgan_gp.py` of eriklindernoren/PyTorch-GAN run offline.

Random grey images in place of MNIST, a third of the original number.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = ["--n_epochs", "1"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 147  # line of the loop or function whose body is one step
CHANGES = [set_literal("../../data/mnist", '"data/mnist"')]


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "mnist" / "MNIST" / "raw", 20_000, 100)
