"""Make `01-TF2.0-Overview/fc_train.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 65  # line of the loop or function whose body is one step
CHANGES = [call_instead("load_data", '__import__("stored").load', '"mnist.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 1000, 100)
