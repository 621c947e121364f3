"""Make `time_sequence_prediction/train.py` of pytorch/examples run offline.

Sine waves with a tenth of the points, and a tenth of the predicted points. A step is an evaluation of the loss.
"""

from pathlib import Path

import numpy as np
import torch
from tests.wild.edits import add_arguments, set_literal
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = ["--steps", "8"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 61  # line of the loop or function whose body is one step
CHANGES = [
    add_arguments("load", "weights_only=False"),
    set_literal(1000, "100"),
]


def prepare(folder: Path) -> None:
    starts = numbers().integers(-80, 80, (100, 1))
    torch.save(np.sin((np.arange(100) + starts) / 20), folder / "traindata.pt")
