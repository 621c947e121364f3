"""Make `6-Generative_Adversarial_Networks/Pix2Pix.ipynb` of YunYang1994/TensorFlow2.0-Examples run offline.

Random pairs of images in place of the facades. The notebook does not define its number of epochs.
"""

from pathlib import Path

from tests.wild.edits import set_arguments, wrap_value
from tests.wild.made_up import write_display, write_photograph

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 305  # line of the loop or function whose body is one step
CHANGES = [
    wrap_value("path_to_zip", '"data/facades.tar.gz" or ', ""),
    set_arguments("train", "train_dataset, 8"),
]


def prepare(folder: Path) -> None:
    write_display(folder)
    for part, count in (("train", 400), ("test", 20)):
        for number in range(1, count + 1):
            write_photograph(folder / "data" / "facades" / part / f"{number}.jpg", 512, 256, number)
