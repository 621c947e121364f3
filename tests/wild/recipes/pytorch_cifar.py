"""Make `main.py` of kuangliu/pytorch-cifar run offline.

Random colour images in place of CIFAR-10, the smallest model, and a stand-in for `stty`.
"""

from pathlib import Path

from tests.wild.edits import call_instead, set_range
from tests.wild.made_up import write_cifar

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"PATH": ".:/usr/bin:/bin"}
SETTINGS: dict[str, str] = {"batch_size": "8"}
STEP: int | str = 99  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("CIFAR10", '__import__("unchecked").CIFAR10'),
    call_instead("SimpleDLA", "MobileNetV2"),
    set_range("epoch", 1),
]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("models", "models"), ("utils.py", "utils.py")]


def prepare(folder: Path) -> None:
    write_cifar(folder, 240, 100)
    (folder / "stty").write_text("#!/bin/sh\necho 24 80\n")
    (folder / "stty").chmod(0o755)
