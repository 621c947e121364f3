"""Make `tutorial-contents/402_RNN_classifier.py` of MorvanZhou/PyTorch-Tutorial run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 86  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "mnist" / "MNIST" / "raw", 6400, 500)
