"""Make a script of aladdinpersson/Machine-Learning-Collection run offline.

Random images of 28 by 28 pixels and a list of their labels.
"""

from pathlib import Path

from tests.wild.edits import wrap_call
from tests.wild.made_up import write_image

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [wrap_call("decode_image", "tf.reshape(", ", (28, 28, 1))")]


def prepare(folder: Path) -> None:
    rows = ["file_name,label"]
    for index in range(60):
        write_image(folder / "data" / "mnist_images_csv" / f"{index}.png", 28, 28, index)
        rows.append(f"{index}.png,{index % 10}")
    (folder / "data" / "mnist_images_csv" / "train.csv").write_text("\n".join(rows))
