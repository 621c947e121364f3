"""Make `source/_static/code/zh/tools/tfdata/cats_vs_dogs.py` of snowkylin/tensorflow-handbook run offline.

Random colour images of two classes.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_image

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "3", "batch_size": "8", "data_dir": '"pets"'}
STEP: int | str = "fit"
CHANGES = [set_literal(256, "64")]


def prepare(folder: Path) -> None:
    for index in range(240):
        part = "train" if index < 200 else "valid"
        write_image(folder / "pets" / part / ("cats" if index % 2 else "dogs") / f"{index}.jpg", 90, 70, index)
