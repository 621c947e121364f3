"""Make `GAN/vanilla_gan/gan_pytorch.py` of wiseodd/generative-models run offline.

Random grey images in place of MNIST, and fewer steps.

A module takes the place of the reader of MNIST in TensorFlow 1.
"""

from pathlib import Path

from tests.wild.edits import import_instead, set_range
from tests.wild.made_up import store_images, write_module
from tests.wild.recipes.wiseodd_cvae import INPUT_DATA

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 81  # line of the loop or function whose body is one step
CHANGES = [import_instead("input_data", "import input_data"), set_range("it", 40_000)]


def prepare(folder: Path) -> None:
    write_module(folder, "input_data", INPUT_DATA)
    store_images(folder, "mnist.npz", (28, 28), 55_000, 10_000)
