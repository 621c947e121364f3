"""Make `jax_sample/mnist_sample.py` of morikatron/snippet run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

import numpy as np
from tests.wild.edits import call_instead, rename_attribute
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"BATCH_SIZE": "64", "NUM_EPOCHS": "2"}
STEP: int | str = 71  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("fetch_openml", '(lambda *_, **__: __import__("numpy").load("mnist.npz").values())'),
    rename_attribute("A", "toarray()"),
]


def prepare(folder: Path) -> None:
    pixels = numbers().integers(0, 256, (4000, 784)).astype("float32")
    np.savez(folder / "mnist.npz", x=pixels, y=(np.arange(4000) % 10).astype(str))
