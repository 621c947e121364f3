"""Make `0.0-Autoencoder-fashion-mnist.ipynb` of timsainb/tensorflow2-generative-models run offline.

Random grey images in place of Fashion-MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images, write_display

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 154  # line of the loop or function whose body is one step
CHANGES = [call_instead("load_data", '__import__("stored").load', '"fashion_mnist.npz"')]


def prepare(folder: Path) -> None:
    write_display(folder)
    store_images(folder, "fashion_mnist.npz", (28, 28), 60_000, 10_000)
