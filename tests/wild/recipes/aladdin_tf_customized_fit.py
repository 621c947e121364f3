"""Make a script of aladdinpersson/Machine-Learning-Collection run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"batch_size": "8"}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"mnist.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 320, 32)
