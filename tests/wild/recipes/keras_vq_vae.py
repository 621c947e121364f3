"""Make `examples/generative/vq_vae.py` of keras-team/keras-io run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "1", "batch_size": "16"}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"mnist.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 480, 48)
