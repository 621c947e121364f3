"""Make `chapter1-keras-quick-tour/rnn-mnist-1.5.1.py` of PacktPublishing/Advanced-Deep-Learning-with-Keras run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"epochs": "5", "batch_size": "32"}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"mnist.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 1280, 128)
