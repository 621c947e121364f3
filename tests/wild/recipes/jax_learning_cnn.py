"""Make `Flax/CNN.py` of Willis1118/JAX_learning run offline.

Random grey images in place of MNIST.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "1"}
STEP: int | str = 112  # line of the loop or function whose body is one step
CHANGES = [call_instead("tree_map", "jax.tree.map")]


def prepare(folder: Path) -> None:
    write_digits(folder / "train_mnist" / "MNIST" / "raw", 3200, 320)
    write_digits(folder / "test_mnist" / "MNIST" / "raw", 3200, 320)
