"""Make `lesson40-CIFAR与VGG实战/cifar100_train.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random colour images in place of CIFAR-100.
"""

from pathlib import Path

from tests.wild.edits import call_instead, rename_keyword
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 83  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"cifar100.npz"'),
    rename_keyword("Adam", "lr", "learning_rate"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar100.npz", (32, 32, 3), 50_000, 10_000)
