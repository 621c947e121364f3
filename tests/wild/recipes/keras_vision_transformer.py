"""Make `examples/vision/ipynb/image_classification_with_vision_transformer.ipynb` of keras-team/keras-io run offline.

Random colour images in place of CIFAR-100, as many as the original. The labels are of ten classes.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"cifar100.npz"')]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar100.npz", (32, 32, 3), 50_000, 10_000)
