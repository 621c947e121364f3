"""Make `examples/vision/mixup.py` of keras-team/keras-io run offline.

Random grey images in place of Fashion-MNIST.
"""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras", "MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"val_samples": "320", "EPOCHS": "2"}
STEP: int | str = "fit"


def prepare(folder: Path) -> None:
    write_digits(folder / "keras" / "datasets" / "fashion-mnist", 1600, 320, compressed=True)
