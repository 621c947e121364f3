"""Make `examples/vision/metric_learning.py` of keras-team/keras-io run offline.

Random colour images in place of CIFAR-10.
"""

from pathlib import Path

from tests.wild.edits import call_instead, rename_attribute, set_literal
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"num_batches": "100", "epochs": "2"}
STEP: int | str = "fit"
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"cifar10.npz"'),
    set_literal(50000, "1000"),
    rename_attribute("num_batches", "batches"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar10.npz", (32, 32, 3), 1000, 200)
