"""Make `superminddpm.py` of cloneofsimo/minDiffusion run offline.

Random grey images in place of MNIST, with a smaller model and fewer steps of diffusion.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"n_T": "10", "n_epoch": "1", "num_workers": "1", "device": '"cpu"', "batch_size": "16"}
STEP: int | str = 159  # line of the loop or function whose body is one step
CHANGES = [set_literal(64, "8"), set_literal(128, "16"), set_literal(256, "16"), set_literal(512, "16")]


def prepare(folder: Path) -> None:
    write_digits(folder / "data" / "MNIST" / "raw", 640, 64)
    (folder / "contents").mkdir()
