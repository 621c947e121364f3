"""Make `imagenet/main.py` of pytorch/examples run offline.

Random photographs of ten classes, with the smallest of the networks and batches of four.
"""

from pathlib import Path

from tests.wild.made_up import write_photograph

ARGUMENTS: list[str] = ["--epochs", "1", "--batch-size", "4", "--arch", "shufflenet_v2_x0_5"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 327  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    for part, count in (("train", 480), ("val", 20)):
        for index in range(count):
            write_photograph(folder / "imagenet" / part / f"n{index % 10:08}" / f"{index}.JPEG", 500, 375, index)
