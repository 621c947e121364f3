"""Make `tutorials/02-intermediate/language_model/main.py` of yunjey/pytorch-tutorial run offline.

A text of random words with a smaller vocabulary, for a smaller network.
"""

from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import text

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "1", "hidden_size": "128"}
STEP: int | str = 68  # line of the loop or function whose body is one step
CHANGES = [set_literal(1000, "100")]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("tutorials/02-intermediate/language_model/data_utils.py", "data_utils.py")]


def prepare(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "train.txt").write_text(text(1_000_000))
