"""Make `main.py` of marload/ConvNets-TensorFlow2 run offline.

Random colour images in place of CIFAR-10, with the smallest of the networks.
"""

from pathlib import Path

from tests.wild.edits import call_instead, rename_attribute
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = ["--nets", "squeezenet", "--epochs", "1", "--batch_size", "4"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 67  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"cifar10.npz"'),
    rename_attribute("reset_states", "reset_state"),
]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("models", "models"), ("utils.py", "utils.py")]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar10.npz", (32, 32, 3), 48, 8)
