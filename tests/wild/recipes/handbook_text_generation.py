"""Make `source/_static/code/zh/model/text_generation/rnn.py` of snowkylin/tensorflow-handbook run offline.

A text of random words.
"""

from pathlib import Path

from tests.wild.edits import drop_keyword, set_literal
from tests.wild.made_up import text

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras"}
SETTINGS: dict[str, str] = {"num_batches": "100", "seq_length": "10"}
STEP: int | str = 65  # line of the loop or function whose body is one step
CHANGES = [drop_keyword("get_initial_state", "dtype"), set_literal(400, "3")]


def prepare(folder: Path) -> None:
    (folder / "keras" / "datasets").mkdir(parents=True)
    (folder / "keras" / "datasets" / "nietzsche.txt").write_text(text(20_000))
