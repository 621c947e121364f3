"""Make `examples/timeseries/timeseries_classification_from_scratch.py` of keras-team/keras-io run offline.

Random sequences of 500 numbers in two classes.
"""

from pathlib import Path

import numpy as np
from tests.wild.edits import call_instead
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "4", "root_url": '""'}
STEP: int | str = "fit"
CHANGES = [call_instead("plot_model", "(lambda *_, **__: None)")]


def prepare(folder: Path) -> None:
    generator = numbers()
    for name, count in (("FordA_TRAIN.tsv", 640), ("FordA_TEST.tsv", 64)):
        labels = generator.choice([-1.0, 1.0], (count, 1))
        np.savetxt(folder / name, np.hstack([labels, generator.normal(size=(count, 500))]), "%.4f", delimiter="\t")
