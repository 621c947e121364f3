"""Make `chapter5_RNN/nlp/n-gram.ipynb` of L1aoXingyu/code-of-learn-deep-learning-with-pytorch run offline.

The notebook contains its poem. The recipe sets more epochs.
"""

from pathlib import Path

from tests.wild.edits import call_item, set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 65  # line of the loop or function whose body is one step
CHANGES = [set_range("e", 1000), call_item("data")]


def prepare(folder: Path) -> None:
    """The script needs no files."""
