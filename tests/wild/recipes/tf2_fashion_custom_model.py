"""Make `05-FashionMNIST/mnist_custommodel.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random grey images in place of Fashion-MNIST.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras"}
SETTINGS: dict[str, str] = {"epochs": "2", "steps_per_epoch": "100"}
STEP: int | str = "fit"


def prepare(folder: Path) -> None:
    write_digits(folder / "keras" / "datasets" / "fashion-mnist", 3200, 320, compressed=True)
