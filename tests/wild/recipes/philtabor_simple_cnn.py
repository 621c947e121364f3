"""Make `simple_cnn_mnist.py` of philtabor/Youtube-Code-Repository run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "2", "batch_size": "32"}
STEP: int | str = 118  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "mnist" / "MNIST" / "raw", 1280, 256)
