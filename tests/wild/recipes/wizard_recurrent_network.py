"""Make `pytorch_recurrent_neuralnetwork.ipynb` of ritchieng/deep-learning-wizard run offline.

Random grey images in place of MNIST. The notebook trains four networks in turn.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 107  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "MNIST" / "raw", 60_000, 10_000)
