"""Make `chapter11_part02_sequence-models.ipynb` of fchollet/deep-learning-with-python-notebooks run offline.

Files of random words in place of film reviews, and random word vectors. The recipe adapts calls to Keras 3.
"""

from pathlib import Path

import numpy as np
from tests.wild.edits import call_instead, rename_keyword
from tests.wild.made_up import numbers, words

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [
    call_instead("one_hot", "keras.ops.one_hot"),
    rename_keyword("one_hot", "depth", "num_classes"),
]
REVIEWS = 12_500  # of each kind


def prepare(folder: Path) -> None:
    vocabulary = np.array(list(dict.fromkeys(words(60_000))))
    frequencies = (1 / np.arange(1, len(vocabulary) + 1)).cumsum()
    generator = numbers()
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        reviews = folder / "aclImdb" / part
        reviews.mkdir(parents=True)
        lengths = generator.integers(60, 410, REVIEWS)
        chosen = np.searchsorted(frequencies, generator.random(lengths.sum()) * frequencies[-1])
        for number, review in enumerate(np.split(vocabulary[chosen], lengths.cumsum()[:-1])):
            (reviews / f"{number}.txt").write_text(" ".join(review))
    vectors = (" ".join([word, *(f"{value:.4f}" for value in generator.normal(size=100))]) for word in vocabulary)
    (folder / "glove.6B.100d.txt").write_text("\n".join(vectors) + "\n")
