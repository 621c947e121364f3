"""Make a script of aladdinpersson/Machine-Learning-Collection run offline.

Random images of 64 by 64 pixels with two digits each, and lists of their labels.
"""

from pathlib import Path

import numpy as np
from PIL import Image
from tests.wild.edits import drop_call, set_literal
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [
    drop_call("set_memory_growth"),  # for a machine without a GPU
    set_literal("accuracy", '["accuracy"], ["accuracy"]'),  # Keras 3 needs a list for each output
]


def prepare(folder: Path) -> None:
    for part, count in (("train", 640), ("test", 128)):
        generator = numbers(count)
        (folder / f"{part}_images").mkdir()
        rows = ["file_name,first_num,second_num"]
        for index in range(count):
            pixels = np.zeros((64, 64), dtype=np.uint8)
            pixels[18:46, 2:30], pixels[18:46, 34:62] = generator.integers(0, 256, (2, 28, 28))
            Image.fromarray(pixels).save(folder / f"{part}_images" / f"{index}.png")
            rows.append(f"{index}.png,{index % 10},{index // 10 % 10}")
        (folder / f"{part}.csv").write_text("\n".join(rows))
