"""Make `examples/vision/vit_small_ds.py` of keras-team/keras-io run offline.

Random colour images in place of CIFAR-100, in smaller batches.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {
    "EPOCHS": "2",
    "BATCH_SIZE": "32",
    "training": "None, *more",  # newer versions of Keras pass one more argument to the attention
}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"cifar100.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar100.npz", (32, 32, 3), 1280, 64)
