"""Make `examples/nlp/lstm_seq2seq.py` of keras-team/keras-io run offline.

Pairs of short random sentences in place of the sentences in two languages.
"""

from pathlib import Path

from tests.wild.edits import set_range
from tests.wild.made_up import words

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras"}
SETTINGS: dict[str, str] = {"epochs": "6", "latent_dim": "64"}
STEP: int | str = "fit"
CHANGES = [set_range("seq_index", 2)]


def prepare(folder: Path) -> None:
    cache = folder / "keras" / "datasets"
    cache.mkdir(parents=True)
    (cache / "fra-eng.zip").write_bytes(b"")  # the unpacked file is beside the archive
    sources, targets = words(800, 1), words(800, 2)
    lines = (f"{source} a\t{target} b\tmade up\n" for source, target in zip(sources, targets, strict=True))
    (cache / "fra.txt").write_text("".join(lines))
