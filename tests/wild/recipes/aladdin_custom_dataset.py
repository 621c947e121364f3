"""Make `ML/Pytorch/Basics/custom_dataset/custom_dataset.py` of aladdinpersson/Machine-Learning-Collection run offline.

Random colour images of two classes, with a model without stored weights.
"""

from pathlib import Path

from tests.wild.edits import set_arguments
from tests.wild.made_up import write_image

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"batch_size": "8", "num_epochs": "1"}
STEP: int | str = 90  # line of the loop or function whose body is one step
CHANGES = [
    set_arguments("random_split", "dataset, [400, 80]"),
    set_arguments("googlenet", "weights=None, aux_logits=False"),
]


def prepare(folder: Path) -> None:
    rows = ["name,label"]
    for index in range(480):
        write_image(folder / "cats_dogs_resized" / f"{index}.jpg", 64, 64, index)
        rows.append(f"{index}.jpg,{index % 2}")
    (folder / "cats_dogs.csv").write_text("\n".join(rows))
