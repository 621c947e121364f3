"""Make `examples/mnist_classifier.py` of jax-ml/jax run offline.

Random grey images in place of MNIST, a sixth of the original number.
"""

from pathlib import Path

from tests.wild.edits import set_values
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "3"}
STEP: int | str = 88  # line of the loop or function whose body is one step
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("examples/datasets.py", "examples/datasets.py")]


def prepare(folder: Path) -> None:
    data = folder / "examples/datasets.py"
    data.write_text(set_values({"_DATA": '"data/"'})(data.read_text()))
    write_digits(folder / "data", 10_000, 1600, compressed=True)
