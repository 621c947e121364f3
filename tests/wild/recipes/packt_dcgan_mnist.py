"""Make `chapter4-gan/dcgan-mnist-4.2.1.py` of PacktPublishing/Advanced-Deep-Learning-with-Keras run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead, drop_keyword, rename_keyword
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"train_steps": "20", "batch_size": "8"}
STEP: int | str = 143  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"mnist.npz"'),
    drop_keyword("RMSprop", "decay"),
    rename_keyword("RMSprop", "lr", "learning_rate"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 640, 64)
