"""Make `examples/vision/siamese_contrastive.py` of keras-team/keras-io run offline.

Random grey images in place of MNIST, a twelfth of the original number.
"""

from pathlib import Path

from tests.wild.edits import call_instead, set_literal
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "2"}
STEP: int | str = "fit"
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"mnist.npz"'),
    set_literal(30000, "2500"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 5000, 800)
