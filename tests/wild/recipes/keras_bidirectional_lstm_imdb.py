"""Make `examples/nlp/bidirectional_lstm_imdb.py` of keras-team/keras-io run offline.

Sequences of random word indices replace the IMDB reviews.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import store_reviews

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"maxlen": "20"}
STEP: int | str = "fit"
CHANGES = [call_instead("load_data", '__import__("stored").load', '"imdb.npz"')]


def prepare(folder: Path) -> None:
    store_reviews(folder, "imdb.npz", 20000, 640, 64)
