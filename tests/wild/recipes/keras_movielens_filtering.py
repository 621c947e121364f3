"""Make `examples/structured_data/collaborative_filtering_movielens.py` of keras-team/keras-io run offline.

Random ratings of 300 users and 400 films.
"""

from pathlib import Path

from tests.wild.made_up import numbers, words

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"KERAS_HOME": "keras", "MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"


def prepare(folder: Path) -> None:
    films = folder / "keras" / "datasets" / "ml-latest-small"
    films.mkdir(parents=True)
    films.with_suffix(".zip").write_bytes(b"")  # the unpacked files are beside the archive
    generator = numbers()
    rows = zip(*(generator.integers(1, high, 5000).tolist() for high in (301, 401, 6)), strict=True)
    (films / "ratings.csv").write_text("userId,movieId,rating\n" + "".join(f"{u},{m},{r}\n" for u, m, r in rows))
    titles = (f"{index},{word},Drama\n" for index, word in enumerate(words(400), 1))
    (films / "movies.csv").write_text("movieId,title,genres\n" + "".join(titles))
