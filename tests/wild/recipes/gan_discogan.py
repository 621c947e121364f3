"""Make `implementations/discogan/discogan.py` of eriklindernoren/PyTorch-GAN run offline.

As many images as in edges2shoes, of the same size. Only 500 of the files differ: the others are links to them.
"""

import os
from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_photograph

ARGUMENTS: list[str] = ["--n_epochs", "2"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 131  # line of the loop or function whose body is one step
CHANGES = [set_literal("../../data/%s", '"data/%s"')]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [
    ("implementations/discogan/models.py", "models.py"),
    ("implementations/discogan/datasets.py", "datasets.py"),
]
DISTINCT = 500


def prepare(folder: Path) -> None:
    for part, count in (("train", 49_825), ("val", 200)):
        images = folder / "data" / "edges2shoes" / part
        for index in range(min(count, DISTINCT)):
            write_photograph(images / f"{index}_AB.jpg", 512, 256, index)
        for index in range(DISTINCT, count):
            os.link(images / f"{index % DISTINCT}_AB.jpg", images / f"{index}_AB.jpg")
