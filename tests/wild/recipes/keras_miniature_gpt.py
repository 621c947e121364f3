"""Make `examples/generative/text_generation_with_miniature_gpt.py` of keras-team/keras-io run offline.

Files of random words in place of film reviews, with a smaller model.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import text

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"vocab_size": "2000", "maxlen": "20", "embed_dim": "64", "batch_size": "16", "epochs": "2"}
STEP: int | str = "fit"
CHANGES = [call_instead("tile", "tensorflow.tile")]


def prepare(folder: Path) -> None:
    for index, part in enumerate(("train/pos", "train/neg", "test/pos", "test/neg")):
        reviews = folder / "aclImdb" / part
        reviews.mkdir(parents=True)
        for number, line in enumerate(text(12_000, index).splitlines()):
            (reviews / f"{number}.txt").write_text(line)
