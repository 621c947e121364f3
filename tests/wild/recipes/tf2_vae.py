"""Make `12-VAE/main.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random grey images in place of Fashion-MNIST.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras", "MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"num_epochs": "3"}
STEP: int | str = 104  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    write_digits(folder / "keras" / "datasets" / "fashion-mnist", 4000, 200, compressed=True)
    (folder / "images").mkdir()
