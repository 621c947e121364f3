"""Make `pytorch_fc_overcomplete_ae.ipynb` of ritchieng/deep-learning-wizard run offline.

Random grey images in place of Fashion-MNIST, and more steps.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"n_iters": "12_000"}
STEP: int | str = 122  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "FashionMNIST" / "raw", 60_000, 10_000)
