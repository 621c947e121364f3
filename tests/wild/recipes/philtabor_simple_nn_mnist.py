"""Make `simple_nn_mnist.py` of philtabor/Youtube-Code-Repository run offline.

Random grey images in place of MNIST, a sixth of the original number.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"num_epochs": "2"}
STEP: int | str = 112  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "mnist" / "MNIST" / "raw", 10_000, 1000)
