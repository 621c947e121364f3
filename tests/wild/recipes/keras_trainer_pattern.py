"""Random grey images in place of MNIST."""

from pathlib import Path

from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 1280, 256)
