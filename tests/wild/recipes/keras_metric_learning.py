"""Random colour images in place of CIFAR-10."""

from pathlib import Path

from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"num_batches": "100", "epochs": "2"}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    store_images(folder, "cifar10.npz", (32, 32, 3), 1000, 200)
